// Convolution of 3 by 3 with stride 1 as Winograd products (F(4x4, 3x3)): polynomials are multiplied by their
// values at six points along each axis. A tile of 4 by 4 outputs takes 36 multiplications for each pair of channels in place
// of 144, and at each of the 36 points the sum over channels is a matrix product (matmul.wgsl).
//
//   transform_weight       u[p, row, k]        = values of the kernel of (row, k) at point p, whose taps may lie in reverse order
//   transform_input        v[p, channel, tile] = values of the 6 by 6 pixels that a tile reads
//   transform_output       output              = bias + what the products m[p, row, tile] = sum over k of u * v say of each tile;
//                                                with RELU then max(output, 0)
//   transform_grad_output  w[p, channel, tile] = values of the 4 by 4 pixels of a tile, as a kernel of 4 by 4
//   transform_grad_weight  grad_weight[o, c]   = what the products sum over tiles of w[p, o, tile] * v[p, c, tile] say of 3 by 3;
//                                                or added to what is there
//
// In memory the last axis of u, v, w, and of the products is cut into panels of PANEL (as in matmul.wgsl), so that the kernels
// go through it in sequence: [p, panel, row, PANEL]. The last panel is padded: v and w with zeros, the others with anything.
//
// bindings   transform_weight: weight, u. transform_input: input, v. transform_output: m, output, bias (ROW_START).
//            transform_grad_output: grad_output, w. transform_grad_weight: products [36, o, c], grad_weight.
// dispatch   one invocation for each vector of four in the order in which they lie in memory, 64 per workgroup, folded:
//            transform_weight, transform_grad_weight: four channels in one row. Else four tiles in one channel. Tiles are
//            numbered along a row of the image, then down, then from sample to sample.
// workgroup  0 bytes
// source     https://arxiv.org/abs/1509.09308
#import "shared/index.wgsl"
#ifdef ENTRY_transform_output
#import "shared/epilogue.wgsl"
#endif
#import "shared/winograd.wgsl"

// A row, or a channel, and a vector of what lies in panels.
struct Place {
    row: u32,
    vector: u32,
}

fn place_of(i: u32, rows: u32) -> Place {
    let panel = i / (rows * (PANEL / 4));
    let rest = i - panel * (rows * (PANEL / 4));
    return Place(rest / (PANEL / 4), panel * (PANEL / 4) + rest % (PANEL / 4));
}

#ifdef WEIGHT
struct Params {
    // Rows at a time, and the first of them.
    rows: u32,
    first: u32,
    // Channels / 4, and with those that fill the last panel.
    vectors: u32,
    padded_vectors: u32,
    // Distances in the weights.
    row_stride: u32,
    channel_stride: u32,
    // Where the first tap lies, and the distance to the next, which wraps around below zero.
    first_tap: u32,
    tap_stride: u32,
    // 1 to add to what is there.
    accumulate: u32,
}
var<immediate> params: Params;
#else
struct Params {
    // Channels at a time, the first of them, and those of the image.
    channels: u32,
    first: u32,
    all_channels: u32,
    // Tiles at a time / 4 with those that fill the last panel, the first of them, and how many.
    vectors: u32,
    first_tile: u32,
    tiles: u32,
    tiles_h: u32,
    tiles_w: u32,
    // The image.
    height: u32,
    width: u32,
    padding_h: u32,
    padding_w: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

fn runtime_number() -> u32 {
    return params.tiles;
}

struct Tile {
    exists: bool,
    // First element of the channel's plane.
    plane: u32,
    // First pixel of the output.
    y: u32,
    x: u32,
}

fn tile_at(tile: u32, channel: u32) -> Tile {
    let number = params.first_tile + tile;
    let row = number / params.tiles_w;
    let sample = row / params.tiles_h;
    return Tile(
        tile < params.tiles,
        (sample * params.all_channels + params.first + channel) * params.height * params.width,
        (row - sample * params.tiles_h) * 4u,
        (number - row * params.tiles_w) * 4u,
    );
}
#endif

#ifdef ENTRY_transform_weight
@group(0) @binding(0) var<storage, read> weight: array<Storage>;
@group(0) @binding(1) var<storage, read_write> u: array<Storage4>;

@compute @workgroup_size(64)
fn transform_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let place = place_of(i, params.rows);
    if place.vector >= params.vectors {
        return;
    }
    let at = (params.first + place.row) * params.row_stride + place.vector * 4u * params.channel_stride + params.first_tap;
    var half: array<Accum4, 18>;
    #for x in 0..3
    {
        let points = kernel_at_points(Three(
            #for y in 0..3
            Accum4(
                #for j in 0..4
                Accum(weight[at + #ju * params.channel_stride + #(3 * y + x)u * params.tap_stride]),
                #end
            ),
            #end
        ));
        #for p in 0..6
        half[#(3 * p + x)] = points[#p];
        #end
    }
    #end
    #for p in 0..6
    {
        let points = kernel_at_points(Three(half[#(3 * p)], half[#(3 * p + 1)], half[#(3 * p + 2)]));
        #for q in 0..6
        u[#(6 * p + q)u * params.rows * params.padded_vectors + i] = Storage4(points[#q]);
        #end
    }
    #end
}
#endif

#ifdef ENTRY_transform_input
#ifdef ROW
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
#else
#ifdef PAIRS
@group(0) @binding(0) var<storage, read> input: array<Storage2>;
#else
@group(0) @binding(0) var<storage, read> input: array<Storage>;
#endif
#endif
@group(0) @binding(1) var<storage, read_write> v: array<Storage4>;

@compute @workgroup_size(64)
fn transform_input(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let place = place_of(i, params.channels);
    let channel = place.row;
    let first = place.vector * 4u;
    if place.vector >= params.vectors {
        return;
    }
    // Below zero these wrap around to numbers that no image is as large as.
#ifdef ROW
    // The four tiles lie side by side: what they read are whole vectors of a row.
    let tile = tile_at(first, channel);
    let y = tile.y - params.padding_h;
#else
    #for j in 0..4
    let tile#j = tile_at(first + #ju, channel);
    let y#j = tile#j.y - params.padding_h;
    #end
#endif
    var half: array<Accum4, 36>;
    #for r in 0..6
    {
#ifdef ROW
        let row_exists = tile.exists && y + #ru < params.height;
        let row = (tile.plane + (y + #ru) * params.width) / 4u;
        var pixels: Six;
        #for k in 0..6
        {
            let x = tile.x / 4u + #ku - 1u;
            let exists = row_exists && x < params.width / 4u;
            pixels[#k] = select(Accum4(), Accum4(input[select(0u, row + x, exists)]), exists);
        }
        #end
        let points = pixels_at_points(Six(
            #for c in 0..6
            Accum4(
                #for j in 0..4
                pixels[#((4 * j + c + 4 - PADDING_W) / 4)][#((4 * j + c + 4 - PADDING_W) % 4)],
                #end
            ),
            #end
        ));
#else
        #for j in 0..4
        let row#j = tile#j.plane + (y#j + #ru) * params.width;
        let exists#j = tile#j.exists && y#j + #ru < params.height;
        #end
        var pixels: Six;
#ifdef PAIRS
        #for j in 0..4
        {
            var pairs: array<Accum2, PAIRS>;
            #for k in 0..PAIRS
            {
                let x = tile#j.x / 2u - (params.padding_w + 1u) / 2u + #ku;
                let exists = exists#j && x < params.width / 2u;
                pairs[#k] = select(Accum2(), Accum2(input[select(0u, row#j / 2u + x, exists)]), exists);
            }
            #end
            #for c in 0..6
            pixels[#c][#j] = pairs[#((c + PAIRS - 3) / 2)][#((c + PAIRS - 3) % 2)];
            #end
        }
        #end
#else
        #for c in 0..6
        #for j in 0..4
        {
            let x = tile#j.x - params.padding_w + #cu;
            let exists = exists#j && x < params.width;
            pixels[#c][#j] = select(Accum(), Accum(input[select(0u, row#j + x, exists)]), exists);
        }
        #end
        #end
#endif
        let points = pixels_at_points(pixels);
#endif
        #for q in 0..6
        half[#(6 * r + q)] = points[#q];
        #end
    }
    #end
    #for q in 0..6
    {
        let points = pixels_at_points(Six(
            half[#q], half[#(6 + q)], half[#(12 + q)], half[#(18 + q)], half[#(24 + q)], half[#(30 + q)],
        ));
        #for p in 0..6
        v[#(6 * p + q)u * params.channels * params.vectors + i] = Storage4(points[#p]);
        #end
    }
    #end
}
#endif

#ifdef ENTRY_transform_grad_output
#ifdef BY_ELEMENT
@group(0) @binding(0) var<storage, read> grad_output: array<Storage>;
#else
@group(0) @binding(0) var<storage, read> grad_output: array<Storage4>;
#endif
@group(0) @binding(1) var<storage, read_write> w: array<Storage4>;

@compute @workgroup_size(64)
fn transform_grad_output(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let place = place_of(i, params.channels);
    let channel = place.row;
    let first = place.vector * 4u;
    if place.vector >= params.vectors {
        return;
    }
    #for j in 0..4
    let tile#j = tile_at(first + #ju, channel);
    #end
    var half: array<Accum4, 24>;
    #for r in 0..4
    {
        var pixels: Four;
        #for j in 0..4
        {
            let row = tile#j.plane + (tile#j.y + #ru) * params.width + tile#j.x;
            let row_exists = tile#j.exists && tile#j.y + #ru < params.height;
#ifdef BY_ELEMENT
            #for c in 0..4
            {
                let exists = row_exists && tile#j.x + #cu < params.width;
                pixels[#c][#j] = select(Accum(), Accum(grad_output[select(0u, row + #cu, exists)]), exists);
            }
            #end
#else
            let four = select(Accum4(), Accum4(grad_output[select(0u, row / 4u, row_exists)]), row_exists);
            #for c in 0..4
            pixels[#c][#j] = four[#c];
            #end
#endif
        }
        #end
        let points = long_kernel_at_points(pixels);
        #for q in 0..6
        half[#(6 * r + q)] = points[#q];
        #end
    }
    #end
    #for q in 0..6
    {
        let points = long_kernel_at_points(Four(half[#q], half[#(6 + q)], half[#(12 + q)], half[#(18 + q)]));
        #for p in 0..6
        w[#(6 * p + q)u * params.channels * params.vectors + i] = Storage4(points[#p]);
        #end
    }
    #end
}
#endif

#ifdef ENTRY_transform_output
@group(0) @binding(0) var<storage, read> m: array<Storage4>;
#ifdef BY_ELEMENT
@group(0) @binding(1) var<storage, read_write> output: array<Storage>;
#else
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;
#endif
#ifdef ROW_START
@group(0) @binding(2) var<storage, read> bias: array<Storage>;
#endif

@compute @workgroup_size(64)
fn transform_output(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let place = place_of(i, params.channels);
    let channel = place.row;
    let first = place.vector * 4u;
    if place.vector >= params.vectors {
        return;
    }
    var half: array<Accum4, 24>;
    #for q in 0..6
    {
        let rows = four_of_points(Six(
            #for p in 0..6
            Accum4(m[#(6 * p + q)u * params.channels * params.vectors + i]),
            #end
        ));
        #for r in 0..4
        half[#(6 * r + q)] = rows[#r];
        #end
    }
    #end
#ifdef ROW_START
    let start = Accum4(Accum(bias[params.first + channel]));
#endif
    #for r in 0..4
    let row#r = four_of_points(Six(
        half[#(6 * r)], half[#(6 * r + 1)], half[#(6 * r + 2)], half[#(6 * r + 3)], half[#(6 * r + 4)], half[#(6 * r + 5)],
    ));
    #for c in 0..4
#ifdef ROW_START
    let pixel#r_#c = row#r[#c] + start;
#else
    let pixel#r_#c = row#r[#c];
#endif
    #end
    #end
    // In a loop: storing is long code where drivers do it lane by lane.
    for (var number = first; number < min(first + 4u, params.tiles); number++) {
        let tile = tile_at(number, channel);
        let lane = number - first;
        #for r in 0..4
        if tile.y + #ru < params.height {
            let at = tile.plane + (tile.y + #ru) * params.width + tile.x;
#ifdef BY_ELEMENT
            #for c in 0..4
            if tile.x + #cu < params.width {
                output[at + #cu] = Storage(epilogue(Accum4(pixel#r_#c[lane]), at + #cu).x);
            }
            #end
#else
            let sums = Accum4(pixel#r_0[lane], pixel#r_1[lane], pixel#r_2[lane], pixel#r_3[lane]);
            output[at / 4u] = Storage4(epilogue(sums, at / 4u));
#endif
        }
        #end
    }
}
#endif

#ifdef ENTRY_transform_grad_weight
@group(0) @binding(0) var<storage, read> products: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> grad_weight: array<Storage4>;

@compute @workgroup_size(64)
fn transform_grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let place = place_of(i, params.rows);
    if place.vector >= params.vectors {
        return;
    }
    var half: array<Accum4, 18>;
    #for q in 0..6
    {
        let rows = three_of_points(Six(
            #for p in 0..6
            Accum4(products[#(6 * p + q)u * params.rows * params.padded_vectors + i]),
            #end
        ));
        #for y in 0..3
        half[#(6 * y + q)] = rows[#y];
        #end
    }
    #end
    #for y in 0..3
    let row#y = three_of_points(Six(
        half[#(6 * y)], half[#(6 * y + 1)], half[#(6 * y + 2)], half[#(6 * y + 3)], half[#(6 * y + 4)], half[#(6 * y + 5)],
    ));
    #end
    // The nine taps of four channels lie one after the other.
    let at = ((params.first + place.row) * params.vectors + place.vector) * 9u;
    #for k in 0..9
    {
        var sums = Accum4(
            #for i in 0..4
            row#((4 * k + i) % 9 / 3)[#((4 * k + i) % 3)][#((4 * k + i) / 9)],
            #end
        );
        if params.accumulate == 1u {
            sums += Accum4(grad_weight[at + #ku]);
        }
        grad_weight[at + #ku] = Storage4(sums);
    }
    #end
}
#endif
