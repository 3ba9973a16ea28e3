// The kernels of shared/norm.wgsl that go over single elements.
#import "shared/index.wgsl"

struct Elements {
    elements: u32,
    // The group of element i is i / group_inner % groups, its parameter i / parameter_inner % parameters.
    group_inner: u32,
    groups: u32,
    parameter_inner: u32,
    parameters: u32,
    eps: f32,
    // 1 / elements of a group
    inverse_terms: f32,
}
var<immediate> elements: Elements;

fn group_of(i: u32) -> u32 {
    return i / elements.group_inner % elements.groups;
}

fn parameter_of(i: u32) -> u32 {
    return i / elements.parameter_inner % elements.parameters;
}

#ifdef ENTRY_normalize
@compute @workgroup_size(64)
fn normalize(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= elements.elements {
        return;
    }
    let s = statistics_of(group_of(i), elements.eps);
    output[i] = Element(activated(affine((input_at(i) - s.mean) * s.rstd, parameter_of(i))));
}
#endif

#ifdef ENTRY_grad_input_elements
#ifdef TOTAL_G
@group(0) @binding(TOTAL_G) var<storage, read> total_g: array<Accum>;
#endif
#ifdef TOTAL_GX
@group(0) @binding(TOTAL_GX) var<storage, read> total_gx: array<Accum>;
#endif

fn means_of(group: u32) -> Sums {
    var means = Sums(0.0, 0.0);
#ifdef TOTAL_G
    means.g = total_g[group] * elements.inverse_terms;
#endif
#ifdef TOTAL_GX
    means.gx = total_gx[group] * elements.inverse_terms;
#endif
    return means;
}

@compute @workgroup_size(64)
fn grad_input_elements(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= elements.elements {
        return;
    }
    let group = group_of(i);
    let s = statistics_of(group, elements.eps);
    let d = gradient_at(i, parameter_of(i), s);
    output[i] = Element(grad_input_of(d, parameter_of(i), s, means_of(group)));
}
#endif
