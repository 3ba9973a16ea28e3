// C[z][row, column] = sum over k of A[z][row, k] * B[z][k, column], with OUTER also over an outer index, where A may lie as [k, m] (TRANS_A) and B as
// [n, k] (TRANS_B). The sum may be split: every part then writes its own C, and `reduce` adds them:
// output[i, column] = sum over `terms` rows from i * terms on of parts[row, column]. Both add to what is there with ACCUMULATE.
//
// With PANEL what lies next to each other are PANEL columns of B and C, then the same columns of the next row; of A and of a
// transposed B as many k. A tile reads and writes memory in sequence then, which is what caches load ahead of time.
//
// With COLUMN_START (reduce: BIAS) sums start from one number for each column; with RELU then max(sum, 0).
//
// bindings   forward: a, b, output, bias (COLUMN_START). reduce: parts [rows, columns], output [sums, columns], columns a multiple
//            of 4, bias (BIAS) of COLUMNS numbers, which repeat along a row of output.
//            All addresses are elements; VEC_A and VEC_B say that leading dimensions and offsets are multiples of 4, BY_ELEMENT
//            that those of output are not.
// dispatch   forward: one workgroup per tile, the smaller of m and n fastest, then the other, then z = batch * splits +
//            split; folded
//            reduce: one invocation per 4 elements, 64 per workgroup, folded
// workgroup  forward: 8 KiB without subgroups. reduce: 0 bytes.
// source     https://pytorch.org/docs/stable/generated/torch.matmul.html
#import "shared/index.wgsl"
#import "shared/epilogue.wgsl"

const LANES = vec4<u32>(0u, 1u, 2u, 3u);

#ifdef ENTRY_forward
#import "shared/gemm.wgsl"
#ifdef OUTER
#import "shared/divide.wgsl"
#endif

struct Params {
    m: u32,
    n: u32,
    // Terms of the inner sum.
    k: u32,
    // Steps of four of them, rounded up.
    k_steps: u32,
    // Distance between rows in memory.
    lda: u32,
    ldb: u32,
    ldc: u32,
    // First element.
    a_offset: u32,
    b_offset: u32,
    c_offset: u32,
    // Distance between terms of the outer sum.
    a_outer: u32,
    b_outer: u32,
    // Distance between elements of the batch.
    a_batch: u32,
    b_batch: u32,
    c_batch: u32,
    // Parts of the sum, the steps of each, and those of all.
    splits: u32,
    part_steps: u32,
    steps: u32,
    // Distance between the results of the parts.
    c_split: u32,
    // PANEL only: distance between panels.
    a_panel: u32,
    b_panel: u32,
    c_panel: u32,
    // Tiles along rows and along columns; the other way round where columns come first.
    tiles_fast: u32,
    tiles_slow: u32,
    columns_first: u32,
    // Batch * splits
    depth: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

fn runtime_number() -> u32 {
    return params.m;
}

#ifdef VEC_A
@group(0) @binding(0) var<storage, read> a: array<Storage4>;
#else
@group(0) @binding(0) var<storage, read> a: array<Storage>;
#endif
#ifdef VEC_B
@group(0) @binding(1) var<storage, read> b: array<Storage4>;
#else
@group(0) @binding(1) var<storage, read> b: array<Storage>;
#endif
#ifdef BY_ELEMENT
@group(0) @binding(2) var<storage, read_write> output: array<Storage>;
#else
@group(0) @binding(2) var<storage, read_write> output: array<Storage4>;
#endif

#ifdef COLUMN_START
@group(0) @binding(3) var<storage, read> bias: array<Storage>;
#endif

struct Rows {
    // Where the first k of each row lies.
    at: vec4<u32>,
}

struct Columns {
    // Where the first k of each column lies.
    at: vec4<u32>,
    // Where row 0 of C lies, and how far the next: looked up here, not once for each row.
    c_at: u32,
    ldc: u32,
    column: u32,
}

#ifndef VEC_A
fn a_scalar(i: u32) -> Accum {
    return Accum(a[i]);
}
#endif

#ifndef VEC_B
fn b_scalar(i: u32) -> Accum {
    return Accum(b[i]);
}
#endif

// Where k or a column lies, with `panel` between panels.
fn panel_at(i: vec4<u32>, panel: u32) -> vec4<u32> {
#ifdef PANEL
    return (i / vec4<u32>(PANEL)) * panel + i % vec4<u32>(PANEL);
#else
    return i;
#endif
}

fn rows_at(row: u32, z: u32) -> Rows {
    let base = params.a_offset + (z / params.splits) * params.a_batch;
#ifdef TRANS_A
#ifdef VEC_A
    return Rows(base + min(row, (params.m - 1u) & ~3u) + LANES);
#else
    return Rows(base + min(row + LANES, vec4<u32>(params.m - 1u)));
#endif
#else
    return Rows(base + params.lda * min(row + LANES, vec4<u32>(params.m - 1u)));
#endif
}

fn columns_at(column: u32, z: u32) -> Columns {
    let batch = z / params.splits;
    let base = params.b_offset + batch * params.b_batch;
    let c_at = params.c_offset + batch * params.c_batch + (z - batch * params.splits) * params.c_split
        + panel_at(vec4<u32>(column), params.c_panel).x;
    let all = vec4<u32>(params.n - 1u);
#ifdef TRANS_B
    return Columns(base + params.ldb * min(column + LANES, all), c_at, params.ldc, column);
#else
#ifdef VEC_B
    let first = panel_at(vec4<u32>(min(column, (params.n - 1u) & ~3u)), params.b_panel);
    return Columns(base + first + LANES, c_at, params.ldc, column);
#else
    return Columns(base + panel_at(min(column + LANES, all), params.b_panel), c_at, params.ldc, column);
#endif
#endif
}

// The first k of a step, and the outer index.
fn k_at(step: u32) -> vec2<u32> {
#ifdef OUTER
    let outer = divide(step, params.k_steps);
    return vec2<u32>((step - outer * params.k_steps) * 4u, outer);
#else
    return vec2<u32>(step * 4u, 0u);
#endif
}

// The k of a step; the last stands for those past the end.
fn all_k(k: u32) -> vec4<u32> {
#ifdef K_TAIL
    return min(k + LANES, vec4<u32>(params.k - 1u));
#else
    return k + LANES;
#endif
}

fn load_a(rows: Rows, step: u32) -> Block {
    let at = k_at(step);
    let base = rows.at + at.y * params.a_outer;
    let k = all_k(at.x);
#ifdef TRANS_A
    #for j in 0..4
#ifdef VEC_A
    let k#j = Accum4(a[(base.x + k[#j] * params.lda) >> 2u]);
#else
    let i#j = base + k[#j] * params.lda;
    let k#j = Accum4(a_scalar(i#j.x), a_scalar(i#j.y), a_scalar(i#j.z), a_scalar(i#j.w));
#endif
    #end
    let block = Block(k0, k1, k2, k3);
#else
    let along = panel_at(k, params.a_panel);
    #for r in 0..4
#ifdef VEC_A
    let row#r = Accum4(a[(base[#r] + along.x) >> 2u]);
#else
    let i#r = base[#r] + along;
    let row#r = Accum4(a_scalar(i#r.x), a_scalar(i#r.y), a_scalar(i#r.z), a_scalar(i#r.w));
#endif
    #end
    let block = transpose(Block(row0, row1, row2, row3));
#endif
#ifdef K_TAIL
    return transpose(below_end(block, at.x + LANES < vec4<u32>(params.k)));
#else
    return transpose(block);
#endif
}

fn load_b(columns: Columns, step: u32) -> Block {
    let at = k_at(step);
    let base = columns.at + at.y * params.b_outer;
    let k = all_k(at.x);
#ifdef TRANS_B
    let along = panel_at(k, params.b_panel);
    #for j in 0..4
#ifdef VEC_B
    let column#j = Accum4(b[(base[#j] + along.x) >> 2u]);
#else
    let i#j = base[#j] + along;
    let column#j = Accum4(b_scalar(i#j.x), b_scalar(i#j.y), b_scalar(i#j.z), b_scalar(i#j.w));
#endif
    #end
    let block = transpose(Block(column0, column1, column2, column3));
#else
    #for j in 0..4
#ifdef VEC_B
    let k#j = Accum4(b[(base.x + k[#j] * params.ldb) >> 2u]);
#else
    let i#j = base + k[#j] * params.ldb;
    let k#j = Accum4(b_scalar(i#j.x), b_scalar(i#j.y), b_scalar(i#j.z), b_scalar(i#j.w));
#endif
    #end
    let block = Block(k0, k1, k2, k3);
#endif
#ifdef K_TAIL
    return below_end(block, at.x + LANES < vec4<u32>(params.k));
#else
    return block;
#endif
}

#ifdef COLUMN_START
fn column_start(columns: Columns) -> Accum4 {
    let i = min(columns.column + LANES, vec4<u32>(params.n - 1u));
    return Accum4(Accum(bias[i.x]), Accum(bias[i.y]), Accum(bias[i.z]), Accum(bias[i.w]));
}
#endif

fn store_c(row: u32, columns: Columns, sums: Accum4) {
    let first = columns.c_at + row * columns.ldc;
#ifdef BY_ELEMENT
    #for j in 0..4
    if columns.column + #ju < params.n {
        let i = first + #ju;
#ifdef ACCUMULATE
        output[i] = Storage(Accum(output[i]) + sums[#j]);
#else
        output[i] = Storage(epilogue(Accum4(sums[#j]), i).x);
#endif
    }
    #end
#else
    if columns.column < params.n {
        let i = first >> 2u;
#ifdef ACCUMULATE
        output[i] = Storage4(Accum4(output[i]) + sums);
#else
        output[i] = Storage4(epilogue(sums, i));
#endif
    }
#endif
}

@compute @workgroup_size(GEMM_INVOCATIONS)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
#ifdef COOPERATIVE
    @builtin(subgroup_id) subgroup: u32,
#endif
) {
#ifdef COOPERATIVE
    gemm_subgroup = subgroup;
#endif
    let tile = linear_workgroup(workgroup_id, num_workgroups);
    let next = tile / params.tiles_fast;
    let z = next / params.tiles_slow;
    if z >= params.depth {
        return;
    }
    var row = tile - next * params.tiles_fast;
    var column = next - z * params.tiles_slow;
    if params.columns_first == 1u {
        let first = row;
        row = column;
        column = first;
    }
    let split = z % params.splits;
    let begin = split * params.part_steps;
    let steps = Steps(begin, min(params.steps, begin + params.part_steps));
    gemm(Tile(row * TILE_M, column * TILE_N, params.m, z), steps, local_index);
}
#endif

#ifdef ENTRY_reduce
struct Params {
    // Elements of a row / 4, rounded up.
    vectors: u32,
    rows: u32,
    // Rows that one sum adds, and sums.
    terms: u32,
    sums: u32,
#for k in 0..SETTINGS
    setting_#k: f32,
#end
}
var<immediate> params: Params;

fn runtime_number() -> u32 {
    return params.vectors;
}

@group(0) @binding(0) var<storage, read> parts: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<Storage>;
#endif

const BLOCK_ROWS = 32u;

@compute @workgroup_size(64)
fn reduce(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_invocation(workgroup_id, num_workgroups, local_index, 64u);
    let sum_index = i / params.vectors;
    if sum_index >= params.sums {
        return;
    }
    let column = i - sum_index * params.vectors;
#ifdef BIAS
    let at = (i * 4u + LANES) % COLUMNS;
    var block = Accum4(Accum(bias[at.x]), Accum(bias[at.y]), Accum(bias[at.z]), Accum(bias[at.w]));
#else
    var block = Accum4();
#endif
    // In blocks: many like terms would all be rounded to the same side of a sum that has grown large.
    var sum = Accum4();
    let end = min(params.rows, (sum_index + 1u) * params.terms);
    for (var row = sum_index * params.terms; row < end;) {
        for (let block_end = min(end, row + BLOCK_ROWS); row < block_end; row++) {
            block += Accum4(parts[row * params.vectors + column]);
        }
        sum += block;
        block = Accum4();
    }
#ifdef ACCUMULATE
    sum = Accum4(output[i]) + sum;
#endif
    output[i] = Storage4(epilogue(sum, i));
}
#endif
