// Cross-entropy of logits with labels: the target's share of a class is 1 at the label, else 0. Labels of ignore_index do
// not count (where IGNORES); any other that is no class makes loss and gradient NaN.
//
// formula, bindings (target: labels u32 [N, ...inner]), in place, dispatch, workgroup   see shared/class_loss.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
#import "shared/class_loss.wgsl"

@group(0) @binding(1) var<storage, read> labels: array<u32>;

fn target_at(position: u32) -> u32 {
    return labels[position];
}

fn counts(label: u32) -> bool {
#ifdef IGNORES
    return label != params.ignore_index;
#else
    return true;
#endif
}

// NaN, made from bits that no compiler can fold away.
fn not_a_number() -> f32 {
    return bitcast<f32>(0x7fc00000u | (params.positions & 1u));
}

fn target_share(label: u32, c: u32, element: u32) -> Accum {
    let found = select(0.0, 1.0, c == label);
    return select(found, not_a_number(), label >= params.classes);
}
