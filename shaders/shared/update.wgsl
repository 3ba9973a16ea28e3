// The kernel of updates that change each element by itself. The importing file defines `Params`, whose first member is
//   vectors: u32        elements / 4, rounded up
// its states from binding 4 on, and
//   fn update(i: u32, rates: vec4<f32>)   changes the parameter's and the states' vector i; `rates` is what hyper holds
//
// bindings   forward: parameter (changed), gradient, hyper [4], guard [1], states (changed); all but hyper and guard of one shape
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
//
// Nothing changes while guard[0] is not finite. All in f32.
#import "shared/index.wgsl"
#import "shared/math.wgsl"

@group(0) @binding(0) var<storage, read_write> parameter: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gradient: array<Storage4>;
@group(0) @binding(2) var<storage, read> hyper: array<f32>;
@group(0) @binding(3) var<storage, read> guard: array<f32>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    // What is the same for all is read before any branch: within one, software devices read it for one lane after the other.
    let rates = vec4<f32>(hyper[0], hyper[1], hyper[2], hyper[3]);
    let guarded = is_finite(guard[0]);
    if i >= params.vectors || !guarded {
        return;
    }
    update(i, rates);
}
