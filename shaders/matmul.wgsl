// C[z][row, column] = sum over outer and k of A[z][row, k] * B[z][k, column], where A may lie as [k, m] (TRANS_A) and B as
// [n, k] (TRANS_B). The sum may be split: every part then writes its own C, and `reduce` adds them:
// output[i, column] = sum over `terms` rows from i * terms on of parts[row, column]. Both add to what is there with ACCUMULATE.
//
// With COLUMN_START (reduce: BIAS) sums start from one number for each column; with RELU then max(sum, 0).
//
// bindings   forward: a, b, c, bias (COLUMN_START). reduce: parts [rows, columns], output [sums, columns], columns a multiple
//            of 4, bias (BIAS) of COLUMNS numbers, which repeat along a row of output.
//            All addresses are elements; VEC_A, VEC_B and VEC_C say that leading dimensions and offsets are multiples of 4.
// dispatch   forward: one workgroup per tile, the smaller of m and n fastest, then the other, then z = batch * splits +
//            split; folded
//            reduce: one invocation per 4 elements, 64 per workgroup, folded
// workgroup  forward: 8 KiB without subgroups. reduce: 0 bytes.
// source     https://pytorch.org/docs/stable/generated/torch.matmul.html
#import "shared/index.wgsl"
#import "shared/epilogue.wgsl"

#ifdef ENTRY_forward
#import "shared/gemm.wgsl"

struct Params {
    m: u32,
    n: u32,
    // Terms of the inner sum.
    k: u32,
    // Terms of the outer sum.
    outer: u32,
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
    // Parts of the sum: part i begins at i * step and has so many terms, but none past the end.
    splits: u32,
    k_step: u32,
    k_terms: u32,
    outer_step: u32,
    outer_terms: u32,
    // Distance between the results of the parts.
    c_split: u32,
    // Tiles along rows and along columns; the other way round where columns come first.
    tiles_fast: u32,
    tiles_slow: u32,
    columns_first: u32,
    // Batch * splits
    depth: u32,
}
var<immediate> params: Params;

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
#ifdef VEC_C
@group(0) @binding(2) var<storage, read_write> c: array<Storage4>;
#else
@group(0) @binding(2) var<storage, read_write> c: array<Storage>;
#endif

#ifdef COLUMN_START
@group(0) @binding(3) var<storage, read> bias: array<Storage>;
#endif

struct Rows {
    // Where k = 0 of each row lies.
    at: vec4<u32>,
}

struct Columns {
    // Where k = 0 of each column lies.
    at: vec4<u32>,
    // Where row 0 of C lies.
    c_at: u32,
    column: u32,
}

fn a_scalar(i: u32) -> Accum {
#ifdef VEC_A
    return Accum4(a[i >> 2u])[i & 3u];
#else
    return Accum(a[i]);
#endif
}

fn b_scalar(i: u32) -> Accum {
#ifdef VEC_B
    return Accum4(b[i >> 2u])[i & 3u];
#else
    return Accum(b[i]);
#endif
}

fn rows_at(row: u32, z: u32) -> Rows {
    let base = params.a_offset + (z / params.splits) * params.a_batch;
#ifdef TRANS_A
#ifdef VEC_A
    return Rows(base + min(row, (params.m - 1u) & ~3u) + vec4<u32>(0u, 1u, 2u, 3u));
#else
    return Rows(base + min(row + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.m - 1u)));
#endif
#else
    return Rows(base + params.lda * min(row + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.m - 1u)));
#endif
}

fn columns_at(column: u32, z: u32) -> Columns {
    let batch = z / params.splits;
    let base = params.b_offset + batch * params.b_batch;
    let c_at = params.c_offset + batch * params.c_batch + (z - batch * params.splits) * params.c_split + column;
    let all = vec4<u32>(params.n - 1u);
#ifdef TRANS_B
    return Columns(base + params.ldb * min(column + vec4<u32>(0u, 1u, 2u, 3u), all), c_at, column);
#else
#ifdef VEC_B
    return Columns(base + min(column, (params.n - 1u) & ~3u) + vec4<u32>(0u, 1u, 2u, 3u), c_at, column);
#else
    return Columns(base + min(column + vec4<u32>(0u, 1u, 2u, 3u), all), c_at, column);
#endif
#endif
}

fn enter_rows(rows: Rows, outer: u32) -> Rows {
    return Rows(rows.at + outer * params.a_outer);
}

fn enter_columns(columns: Columns, outer: u32) -> Columns {
    return Columns(columns.at + outer * params.b_outer, columns.c_at, columns.column);
}

fn load_a(rows: Rows, k: u32) -> Block {
#ifdef TRANS_A
#ifdef VEC_A
    let i = rows.at.x + k * params.lda;
    return transpose(Block(
        Accum4(a[i >> 2u]),
        Accum4(a[(i + params.lda) >> 2u]),
        Accum4(a[(i + 2u * params.lda) >> 2u]),
        Accum4(a[(i + 3u * params.lda) >> 2u]),
    ));
#else
    return transpose(Block(
        load_a_single(rows, k),
        load_a_single(rows, k + 1u),
        load_a_single(rows, k + 2u),
        load_a_single(rows, k + 3u),
    ));
#endif
#else
#ifdef VEC_A
    let i = (rows.at + k) >> vec4<u32>(2u);
    return Block(Accum4(a[i.x]), Accum4(a[i.y]), Accum4(a[i.z]), Accum4(a[i.w]));
#else
    return transpose(Block(
        load_a_single(rows, k),
        load_a_single(rows, k + 1u),
        load_a_single(rows, k + 2u),
        load_a_single(rows, k + 3u),
    ));
#endif
#endif
}

fn load_b(columns: Columns, k: u32) -> Block {
#ifdef TRANS_B
#ifdef VEC_B
    let i = (columns.at + k) >> vec4<u32>(2u);
    return transpose(Block(Accum4(b[i.x]), Accum4(b[i.y]), Accum4(b[i.z]), Accum4(b[i.w])));
#else
    return Block(
        load_b_single(columns, k),
        load_b_single(columns, k + 1u),
        load_b_single(columns, k + 2u),
        load_b_single(columns, k + 3u),
    );
#endif
#else
#ifdef VEC_B
    let i = columns.at.x + k * params.ldb;
    return Block(
        Accum4(b[i >> 2u]),
        Accum4(b[(i + params.ldb) >> 2u]),
        Accum4(b[(i + 2u * params.ldb) >> 2u]),
        Accum4(b[(i + 3u * params.ldb) >> 2u]),
    );
#else
    return Block(
        load_b_single(columns, k),
        load_b_single(columns, k + 1u),
        load_b_single(columns, k + 2u),
        load_b_single(columns, k + 3u),
    );
#endif
#endif
}

fn load_a_single(rows: Rows, k: u32) -> Accum4 {
#ifdef TRANS_A
    let i = rows.at + k * params.lda;
#ifdef VEC_A
    return Accum4(a[i.x >> 2u]);
#else
    return Accum4(a_scalar(i.x), a_scalar(i.y), a_scalar(i.z), a_scalar(i.w));
#endif
#else
    let i = rows.at + k;
    return Accum4(a_scalar(i.x), a_scalar(i.y), a_scalar(i.z), a_scalar(i.w));
#endif
}

fn load_b_single(columns: Columns, k: u32) -> Accum4 {
#ifdef TRANS_B
    let i = columns.at + k;
    return Accum4(b_scalar(i.x), b_scalar(i.y), b_scalar(i.z), b_scalar(i.w));
#else
    let i = columns.at + k * params.ldb;
#ifdef VEC_B
    return Accum4(b[i.x >> 2u]);
#else
    return Accum4(b_scalar(i.x), b_scalar(i.y), b_scalar(i.z), b_scalar(i.w));
#endif
#endif
}

#ifdef COLUMN_START
fn column_start(columns: Columns) -> Accum4 {
    let i = min(columns.column + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u));
    return Accum4(Accum(bias[i.x]), Accum(bias[i.y]), Accum(bias[i.z]), Accum(bias[i.w]));
}
#endif

fn store_c(row: u32, columns: Columns, sums: Accum4) {
    let value = epilogue(sums);
    let i = columns.c_at + row * params.ldc;
#ifdef VEC_C
    if columns.column < params.n {
#ifdef ACCUMULATE
        c[i >> 2u] = Storage4(Accum4(c[i >> 2u]) + value);
#else
        c[i >> 2u] = Storage4(value);
#endif
    }
#else
    #for j in 0..4
    if columns.column + #ju < params.n {
#ifdef ACCUMULATE
        c[i + #ju] = Storage(Accum(c[i + #ju]) + value[#j]);
#else
        c[i + #ju] = Storage(value[#j]);
#endif
    }
    #end
#endif
}

@compute @workgroup_size(GEMM_INVOCATIONS)
fn forward(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
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
    let terms = Terms(
        split * params.outer_step,
        min(params.outer, split * params.outer_step + params.outer_terms),
        split * params.k_step,
        min(params.k, split * params.k_step + params.k_terms),
    );
    gemm(Tile(row * TILE_M, column * TILE_N, params.m, z), terms, local_index);
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
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> parts: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<Storage>;
#endif

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
    let at = (i * 4u + vec4<u32>(0u, 1u, 2u, 3u)) % COLUMNS;
    var sum = Accum4(Accum(bias[at.x]), Accum(bias[at.y]), Accum(bias[at.z]), Accum(bias[at.w]));
#else
    var sum = Accum4();
#endif
    for (var row = sum_index * params.terms; row < min(params.rows, (sum_index + 1u) * params.terms); row++) {
        sum += Accum4(parts[row * params.vectors + column]);
    }
#ifdef ACCUMULATE
    sum = Accum4(output[i]) + sum;
#endif
    output[i] = Storage4(epilogue(sum));
}
#endif
