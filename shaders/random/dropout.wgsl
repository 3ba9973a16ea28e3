// output = input * scale where a random number is at least the threshold, 0 elsewhere. The same launch on grad_output with
// the same run is the gradient.
//
// `block` consecutive elements of a sample share one random number: number b of sample n is component b % 4 of Philox at
// (b / 4, run[3] + n, run[2], stream) under the key (run[0], run[1]).
//
// bindings   input [N, ...], run u32 [4], output [N, ...]
// in place   input
// dispatch   one invocation per 4 elements, 64 per workgroup, folded
// workgroup  0 bytes
// source     https://pytorch.org/docs/stable/generated/torch.nn.Dropout.html
#import "shared/index.wgsl"
#import "shared/philox.wgsl"

struct Params {
    // Elements / 4, rounded up.
    vectors: u32,
    // Elements of a sample.
    sample: u32,
    block: u32,
    threshold: u32,
    scale: f32,
    stream: u32,
}
var<immediate> params: Params;

#ifndef IN_PLACE_0
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#endif
// Seed (low word, high word), step, index of the first sample within the step's batch.
@group(0) @binding(1) var<storage, read> run: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;

// Numbers 4 * quad to 4 * quad + 3 of a sample; `state` is what `run` holds.
fn draw(state: vec4<u32>, sample: u32, quad: u32) -> vec4<u32> {
    return philox4x32_10(vec4<u32>(quad, state.w + sample, state.z, params.stream), state.xy);
}

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    // Before any branch, as in shared/update.wgsl.
    let state = vec4<u32>(run[0], run[1], run[2], run[3]);
    if i >= params.vectors {
        return;
    }
    var sample = 4u * i / params.sample;
    var number = (4u * i - sample * params.sample) / params.block;
    var bits = draw(state, sample, number / 4u);
    if params.block % 4u == 0u {
        // The sample is a multiple of the block: four elements have one number.
        bits = vec4<u32>(bits[number % 4u]);
    } else if params.block > 1u || params.sample % 4u > 0u {
        let numbers = params.sample / params.block;
        var drawn = bits;
        var quad = number / 4u;
        var place = 4u * i % params.block;
        for (var k = 0u; k < 4u; k++) {
            if place == params.block {
                place = 0u;
                number += 1u;
                if number == numbers {
                    number = 0u;
                    sample += 1u;
                    quad = 0u;
                    drawn = draw(state, sample, 0u);
                } else if number / 4u != quad {
                    quad = number / 4u;
                    drawn = draw(state, sample, quad);
                }
            }
            bits[k] = drawn[number % 4u];
            place += 1u;
        }
    }
    let factor = select(Accum4(0.0), Accum4(params.scale), bits >= vec4<u32>(params.threshold));
#ifdef IN_PLACE_0
    output[i] = Storage4(factor * Accum4(output[i]));
#else
    output[i] = Storage4(factor * Accum4(input[i]));
#endif
}
