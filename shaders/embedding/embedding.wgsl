// output[n] = weight[indices[n]], a row of weight for each index, NaN where there is no such row;
// grad_weight[v] = the sum of grad_output[n] over the n with indices[n] = v, in the order of n.
//
// The gradient first sorts the numbers n by index, four bits at a time and keeping the order of equals: `count` counts the
// digits of each chunk, `scan` turns the counts into places, `scatter` moves the numbers there. Then `bounds` finds where the
// numbers of each row begin, `tiles` adds full tiles of numbers that belong to one row, and `grad_weight` adds to those
// the rest of each row. An index that is no row sorts behind all rows. Which terms a sum adds first depends on the indices
// only. In `forward`, `tiles` and `grad_weight` elements are vectors of four with VEC.
//
// bindings   forward: indices u32 [N], weight [V, D], output [N, D];
//            count: indices, counts u32 [16, chunks], order u32 [N] (not with FIRST: then n is at place n);
//            scan: counts; scatter: indices, counts, sorted order [N], order [N] (not with FIRST);
//            bounds: indices, order, begin u32 [V + 1]; tiles: indices, order, grad_output [N, D], partials [N / tile, D];
//            grad_weight: order, begin, grad_output, partials, grad_weight [V, D]
// in place   no
// dispatch   forward, tiles, grad_weight: one invocation per element written; count, scatter: one per chunk; bounds: one per row
//            and one more; each 64 per workgroup, folded; scan: one workgroup of 256
// workgroup  1024 bytes (scan)
// source     https://pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html
#import "shared/index.wgsl"
#import "shared/sums.wgsl"
#import "shared/nan.wgsl"

struct Params {
    // Elements that the kernel writes.
    elements: u32,
    // Elements of a row.
    width: u32,
    // Rows of weight.
    rows: u32,
    // Numbers in a tile.
    tile: u32,
    // The row whose gradient is 0; 0xffffffff for none.
    padding: u32,
}
var<immediate> params: Params;

struct SortParams {
    // Numbers to sort.
    numbers: u32,
    rows: u32,
    // Numbers in a chunk.
    chunk: u32,
    chunks: u32,
    // Where the digit is.
    shift: u32,
}
var<immediate> sort_params: SortParams;

#ifdef VEC
alias Element = Storage4;
alias Term = Accum4;
#else
alias Element = Storage;
alias Term = Accum;
#endif

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<Element>;
@group(0) @binding(2) var<storage, read_write> output: array<Element>;

@group(0) @binding(1) var<storage, read_write> digit_counts: array<u32>;
@group(0) @binding(2) var<storage, read> count_order: array<u32>;

@group(0) @binding(0) var<storage, read_write> scanned: array<u32>;

@group(0) @binding(1) var<storage, read> places: array<u32>;
@group(0) @binding(2) var<storage, read_write> sorted: array<u32>;
@group(0) @binding(3) var<storage, read> scatter_order: array<u32>;

@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> begin: array<u32>;

@group(0) @binding(2) var<storage, read> tile_grad_output: array<Element>;
@group(0) @binding(3) var<storage, read_write> tile_sums: array<Term>;

@group(0) @binding(0) var<storage, read> sum_order: array<u32>;
@group(0) @binding(1) var<storage, read> row_begin: array<u32>;
@group(0) @binding(2) var<storage, read> grad_output: array<Element>;
@group(0) @binding(3) var<storage, read> partials: array<Term>;
@group(0) @binding(4) var<storage, read_write> grad_weight_: array<Element>;

@compute @workgroup_size(64)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let n = i / params.width;
    let row = indices[n];
    if row < params.rows {
        output[i] = weight[row * params.width + (i - n * params.width)];
    } else {
        output[i] = Element(Term(not_a_number(params.rows)));
    }
}

fn digit(n: u32) -> u32 {
    return (min(indices[n], sort_params.rows) >> sort_params.shift) & 15u;
}

@compute @workgroup_size(64)
fn count(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let chunk = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if chunk >= sort_params.chunks {
        return;
    }
    var counts = array<u32, 16>();
    let end = min((chunk + 1u) * sort_params.chunk, sort_params.numbers);
    for (var i = chunk * sort_params.chunk; i < end; i++) {
#ifdef FIRST
        counts[digit(i)] += 1u;
#else
        counts[digit(count_order[i])] += 1u;
#endif
    }
    for (var d = 0u; d < 16u; d++) {
        digit_counts[d * sort_params.chunks + chunk] = counts[d];
    }
}

var<workgroup> scan_sums: array<u32, 256>;

// Each number becomes the sum of those before it.
@compute @workgroup_size(256)
fn scan(@builtin(local_invocation_index) local_index: u32) {
    let total = 16u * sort_params.chunks;
    let span = (total + 255u) / 256u;
    let start = min(local_index * span, total);
    let end = min(start + span, total);
    var sum = 0u;
    for (var i = start; i < end; i++) {
        sum += scanned[i];
    }
    scan_sums[local_index] = sum;
    workgroupBarrier();
    for (var distance = 1u; distance < 256u; distance = distance * 2u) {
        var before = 0u;
        if local_index >= distance {
            before = scan_sums[local_index - distance];
        }
        workgroupBarrier();
        scan_sums[local_index] += before;
        workgroupBarrier();
    }
    var place = scan_sums[local_index] - sum;
    for (var i = start; i < end; i++) {
        let own = scanned[i];
        scanned[i] = place;
        place += own;
    }
}

@compute @workgroup_size(64)
fn scatter(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let chunk = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if chunk >= sort_params.chunks {
        return;
    }
    var next = array<u32, 16>();
    for (var d = 0u; d < 16u; d++) {
        next[d] = places[d * sort_params.chunks + chunk];
    }
    let end = min((chunk + 1u) * sort_params.chunk, sort_params.numbers);
    for (var i = chunk * sort_params.chunk; i < end; i++) {
#ifdef FIRST
        let n = i;
#else
        let n = scatter_order[i];
#endif
        let d = digit(n);
        sorted[next[d]] = n;
        next[d] += 1u;
    }
}

@compute @workgroup_size(64)
fn bounds(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let row = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if row > sort_params.rows {
        return;
    }
    // The first place whose index is not below the row: it is in low..=high.
    var low = 0u;
    var high = sort_params.numbers;
    while low < high {
        let middle = (low + high) / 2u;
        if indices[order[middle]] < row {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    begin[row] = low;
}

@compute @workgroup_size(64)
fn tiles(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let tile = i / params.width;
    let d = i - tile * params.width;
    let first = tile * params.tile;
    let last = first + params.tile - 1u;
    // Tiles of several rows are not read.
    if indices[order[first]] != indices[order[last]] {
        return;
    }
    var added = LongSum();
    for (var at = first; at <= last; at++) {
        add_term(&added, Term(tile_grad_output[order[at] * params.width + d]));
    }
    tile_sums[i] = total_of(added);
}

@compute @workgroup_size(64)
fn grad_weight(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    if i >= params.elements {
        return;
    }
    let row = i / params.width;
    let d = i - row * params.width;
    var added = LongSum();
    if row != params.padding {
        let start = row_begin[row];
        let end = row_begin[row + 1u];
        // Full tiles within the row: the first, and one past the last.
        let first_tile = (start + params.tile - 1u) / params.tile;
        let last_tile = max(end / params.tile, first_tile);
        let head_end = min(first_tile * params.tile, end);
        for (var at = start; at < head_end; at++) {
            add_term(&added, Term(grad_output[sum_order[at] * params.width + d]));
        }
        for (var tile = first_tile; tile < last_tile; tile++) {
            add_term(&added, partials[tile * params.width + d]);
        }
        for (var at = max(last_tile * params.tile, head_end); at < end; at++) {
            add_term(&added, Term(grad_output[sum_order[at] * params.width + d]));
        }
    }
    grad_weight_[i] = Element(total_of(added));
}
