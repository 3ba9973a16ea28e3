// The part of a convolution that a matrix product of conv2d.wgsl computes (forward, grad_input), whose parameters it reads.
#import "shared/taps.wgsl"

// What is computed together: a group, and with PHASES those pixels of `dest` that lie whole strides apart, which all meet
// the same kernel positions. The others meet none of them, and are left to other workgroups.
struct Part {
    group: u32,
#ifdef PHASES
    // The first pixel, the first kernel position that it meets, and how many.
    y: u32,
    x: u32,
    ky: u32,
    kx: u32,
    taps_h: u32,
    taps_w: u32,
#endif
}
var<private> part: Part;

#ifdef PHASES
fn part_at(z: u32) -> Part {
    let rest = z / params.phases_w;
    let group = rest / params.phases_h;
    let y = rest - group * params.phases_h;
    let x = z - rest * params.phases_w;
    let kernel_h = params.taps / params.kernel_w;
    let ky = first_tap(y + params.padding_h, kernel_h, STRIDE_H, params.dilation_h);
    let kx = first_tap(x + params.padding_w, params.kernel_w, STRIDE_W, params.dilation_w);
    let taps_h = (kernel_h - ky + TAP_STEP_H - 1u) / TAP_STEP_H;
    let taps_w = (params.kernel_w - kx + TAP_STEP_W - 1u) / TAP_STEP_W;
    return Part(group, y, x, ky, kx, taps_h, taps_w);
}

fn part_steps() -> u32 {
    return part.taps_h * part.taps_w * params.inner_steps;
}

// Row and column in the kernel of a tap, counted among those of the part.
fn tap_at(number: u32) -> vec2<u32> {
    let row = divide(number, part.taps_w);
    return vec2<u32>(part.ky + row * TAP_STEP_H, part.kx + (number - row * part.taps_w) * TAP_STEP_W);
}
#else
fn part_at(z: u32) -> Part {
    return Part(z);
}

fn part_steps() -> u32 {
#ifdef FLAT
    return params.inner_steps;
#else
    return params.taps * params.inner_steps;
#endif
}

fn tap_at(number: u32) -> vec2<u32> {
    let row = divide(number, params.kernel_w);
    return vec2<u32>(row, number - row * params.kernel_w);
}
#endif
