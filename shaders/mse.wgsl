// loss = mean((input - target)^2); grad_input = setting * grad_loss * (input - target), setting = 2 / n.
// The gradient for the target is the same with the sign turned: setting = -2 / n.
//
// bindings   forward: input, target, partial f32[ceil(n / 4096)]; grad_input: input, target, grad_loss [1], grad_input
// in place   grad_input: input or target
// dispatch   forward: one workgroup of 256 per 4096 elements, folded; grad_input: one invocation per 4 elements
// workgroup  forward: 1024 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.MSELoss.html
#import "shared/index.wgsl"
#import "shared/reduce.wgsl"

struct Params {
    // forward: elements; grad_input: elements / 4, rounded up.
    n: u32,
    setting: f32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> input: array<Storage>;
@group(0) @binding(1) var<storage, read> target_: array<Storage>;
@group(0) @binding(2) var<storage, read_write> partial: array<f32>;

#ifdef IN_PLACE_0
#else
@group(0) @binding(0) var<storage, read> input_vectors: array<Storage4>;
#endif
#ifdef IN_PLACE_1
#else
@group(0) @binding(1) var<storage, read> target_vectors: array<Storage4>;
#endif
@group(0) @binding(2) var<storage, read> grad_loss: array<Storage>;
@group(0) @binding(3) var<storage, read_write> grad: array<Storage4>;

@compute @workgroup_size(256)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let chunk = linear_workgroup(workgroup_id, num_workgroups);
    let end = min(params.n, (chunk + 1u) * 4096u);
    var sum = 0.0;
    for (var i = chunk * 4096u + local_index; i < end; i += 256u) {
        let difference = Accum(input[i]) - Accum(target_[i]);
        sum += difference * difference;
    }
    let total = sum_workgroup(sum, local_index);
    if local_index == 0u && chunk * 4096u < params.n {
        partial[chunk] = total;
    }
}

@compute @workgroup_size(64)
fn grad_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.n {
        return;
    }
#ifdef IN_PLACE_0
    let x = Accum4(grad[i]);
#else
    let x = Accum4(input_vectors[i]);
#endif
#ifdef IN_PLACE_1
    let t = Accum4(grad[i]);
#else
    let t = Accum4(target_vectors[i]);
#endif
    grad[i] = Storage4((params.setting * Accum(grad_loss[0])) * (x - t));
}
