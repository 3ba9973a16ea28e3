// Cross-entropy of logits with probabilities: the target's share of a class is what it says.
//
// formula, bindings (target [N, classes, ...inner]), in place, dispatch, workgroup   see shared/class_loss.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
#import "shared/class_loss.wgsl"

@group(0) @binding(1) var<storage, read> target_values: array<Storage>;

fn target_at(position: u32) -> u32 {
    return 0u;
}

fn counts(target_: u32) -> bool {
    return true;
}

fn target_share(target_: u32, c: u32, element: u32) -> Accum {
    return Accum(target_values[element]);
}
