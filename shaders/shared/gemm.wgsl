// The tile of a matrix product that one workgroup computes: C[row, column] = sum over k of A[row, k] * B[k, column]. The sum
// goes in steps of four k; which these are is known to the importing file alone.
//
// The importing file completes it:
//   struct Rows, fn rows_at(row, z) -> Rows           where four rows of A from `row` on lie in memory
//   struct Columns, fn columns_at(column, z)          the same for four columns of B
//   fn load_a(rows, step) -> Block                    the four k of a step: block[r] holds row r
//   fn load_b(columns, step) -> Block                 block[j] holds the four columns at the step's k number j
//   fn store_c(row, columns, value)                   four columns of a row below the tile's limit
//   with ROW_START fn row_start(row, z) -> Accum4     what the sums of four rows start from, otherwise 0
//   with COLUMN_START fn column_start(columns)        the same for four columns
// Where a step has fewer than four k, the others are 0 in both blocks.
// Rows and columns past the edge are loaded too: `rows_at` and `columns_at` clamp them to memory that exists.
//
// With SUBGROUPS a workgroup is one subgroup. Its tile of C stays in registers, each lane loads other rows of A and other
// columns of B, and A reaches all lanes by broadcast: no workgroup memory, no barrier, and few loads, which software
// drivers do lane by lane. Where a tile has fewer rows than the lanes could load, ROW_LANES of them load these rows, and
// STEP_LANES groups of so many each another step (SPREAD if there are several).
//
// Otherwise invocations share blocks of A and B of 16 k through workgroup memory, 64 bytes for each row and column of the tile,
// and each computes 4 ROW_VECTORS rows by 4 COLUMN_VECTORS columns. With COOPERATIVE they load the same blocks, and each
// subgroup multiplies parts of these as matrices of COOPERATIVE rows and columns, rounded to f16 with F16_OPERANDS; what sums start
// from is added in the end (up to 16 KiB). This form passes naga and was never run on a device.

// Four vectors of four.
alias Block = mat4x4<f32>;

// A block, with zeros in place of vectors past the end of the sum.
fn below_end(block: Block, exists: vec4<bool>) -> Block {
    let none = Accum4();
    return Block(
        select(none, block[0], exists[0]),
        select(none, block[1], exists[1]),
        select(none, block[2], exists[2]),
        select(none, block[3], exists[3]),
    );
}

// What a workgroup computes.
struct Tile {
    row: u32,
    column: u32,
    // Rows of C: none is stored from here on.
    rows: u32,
    // Batch, group or part of a split sum: handed on to `rows_at` and `columns_at`.
    z: u32,
}

// The steps of the sum.
struct Steps {
    begin: u32,
    end: u32,
}

#ifdef SUBGROUPS
const GEMM_INVOCATIONS = SUBGROUP_SIZE;

fn gemm(tile: Tile, steps: Steps, lane: u32) {
    // Indexed by constants only, so these are registers.
    var acc: array<Accum4, TILE_M>;
    #for p in 0..PANELS
    let rows#p = rows_at(tile.row + (#p * ROW_LANES + lane % ROW_LANES) * 4u, tile.z);
    #end
#ifdef ROW_START
    #for p in 0..PANELS
    let start#p = row_start(tile.row + (#p * ROW_LANES + lane % ROW_LANES) * 4u, tile.z);
    #for lane in 0..ROW_LANES
    #for r in 0..4
    acc[(#p * ROW_LANES + #lane) * 4 + #r] = Accum4(subgroupBroadcast(start#p[#r], #laneu));
    #end
    #end
    #end
#endif
    let columns = columns_at(tile.column + lane * 4u, tile.z);
#ifdef COLUMN_START
    let start = column_start(columns);
    #for r in 0..TILE_M
    acc[#r] = start;
    #end
#endif
    // One loop, not one in another: drivers that keep a mask of lanes merge all sums with it at the end of each.
    for (var step = steps.begin; step < steps.end; step += STEP_LANES) {
#ifdef SPREAD
        let own = step + lane / ROW_LANES;
#endif
        #for p in 0..PANELS
#ifdef SPREAD
        let a#p = below_end(load_a(rows#p, min(own, steps.end - 1u)), vec4<bool>(own < steps.end));
#else
        let a#p = load_a(rows#p, step);
#endif
        #end
        #for s in 0..STEP_LANES
        {
#ifdef SPREAD
            let at = step + #su;
            let block = below_end(load_b(columns, min(at, steps.end - 1u)), vec4<bool>(at < steps.end));
#else
            let block = load_b(columns, step);
#endif
            // One row of each lane after the other, so that few values of A are in use at a time.
            #for p in 0..PANELS
            #for r in 0..4
            #for lane in 0..ROW_LANES
            {
                let a = subgroupBroadcast(a#p[#r], #(s * ROW_LANES + lane)u);
                acc[(#p * ROW_LANES + #lane) * 4 + #r] += a.x * block[0];
                acc[(#p * ROW_LANES + #lane) * 4 + #r] += a.y * block[1];
                acc[(#p * ROW_LANES + #lane) * 4 + #r] += a.z * block[2];
                acc[(#p * ROW_LANES + #lane) * 4 + #r] += a.w * block[3];
            }
            #end
            #end
            #end
        }
        #end
    }
    // STORED rows at a time, whose registers the next rows then take, the SHIFTED ones behind them: storing is long code where
    // drivers do it lane by lane, and takes them long to compile.
    let end = min(tile.rows, tile.row + TILE_M);
    for (var row = tile.row; row < end; row += STORED) {
        #for r in 0..STORED
        if row + #ru < end {
            store_c(row + #ru, columns, acc[#r]);
        }
        #end
        #for r in 0..SHIFTED
        acc[#r] = acc[#(r + STORED)];
        #end
    }
}
#else
#ifdef COOPERATIVE
// Four subgroups of 32 invocations compute 32 rows by 32 columns each.
const GEMM_INVOCATIONS = 128u;
const PART = 32u;

// What is multiplied: sums are in f32 whatever it is.
#ifdef F16_OPERANDS
alias Operand = f16;
#else
alias Operand = Accum;
#endif
alias MatrixA = coop_mat#(COOPERATIVE)x#(COOPERATIVE)<Operand, A>;
alias MatrixB = coop_mat#(COOPERATIVE)x#(COOPERATIVE)<Operand, B>;
alias MatrixC = coop_mat#(COOPERATIVE)x#(COOPERATIVE)<Accum, C>;

// [k][row] and [k][column]
var<workgroup> shared_a: array<Operand, 16 * TILE_M>;
var<workgroup> shared_b: array<Operand, 16 * TILE_N>;
// COOPERATIVE rows of the upper parts, then of the lower ones. Begins as zeros, as all workgroup memory does.
var<workgroup> shared_c: array<Accum, 2 * COOPERATIVE * TILE_N>;

// Set by the entry point.
var<private> gemm_subgroup: u32;

fn gemm(tile: Tile, steps: Steps, index: u32) {
    // Half of the invocations load a block of A each, half a block of B.
    let loads_b = index >= 64u;
    let slot = index & 15u;
    let along = (index >> 4u) & 3u;
    let rows = rows_at(tile.row + slot * 4u, tile.z);
    let columns = columns_at(tile.column + slot * 4u, tile.z);
    let lower = gemm_subgroup / 2u;
    let column = gemm_subgroup % 2u * PART;
    #for y in 0..BLOCKS
    #for x in 0..BLOCKS
    var c#y_#x = coopLoadT<MatrixC>(&shared_c[0], TILE_N);
    #end
    #end
    for (var first = steps.begin; first < steps.end; first += 4u) {
        var block = Block();
        if loads_b {
            if first + along < steps.end {
                block = load_b(columns, first + along);
            }
            #for j in 0..4
            #for i in 0..4
            shared_b[(along * 4u + #ju) * TILE_N + slot * 4u + #iu] = Operand(block[#j][#i]);
            #end
            #end
        } else {
            if first + along < steps.end {
                block = transpose(load_a(rows, first + along));
            }
            #for j in 0..4
            #for i in 0..4
            shared_a[(along * 4u + #ju) * TILE_M + slot * 4u + #iu] = Operand(block[#j][#i]);
            #end
            #end
        }
        workgroupBarrier();
        #for k in 0..K_BLOCKS
        #for y in 0..BLOCKS
        let a#k_#y = coopLoad<MatrixA>(&shared_a[#(k * COOPERATIVE) * TILE_M + lower * PART + #(y * COOPERATIVE)], TILE_M);
        #end
        #for x in 0..BLOCKS
        let b#k_#x = coopLoadT<MatrixB>(&shared_b[#(k * COOPERATIVE) * TILE_N + column + #(x * COOPERATIVE)], TILE_N);
        #end
        #for y in 0..BLOCKS
        #for x in 0..BLOCKS
        c#y_#x = coopMultiplyAdd(a#k_#y, b#k_#x, c#y_#x);
        #end
        #end
        #end
        workgroupBarrier();
    }
    let own = columns_at(tile.column + slot * 4u, tile.z);
#ifdef COLUMN_START
    let start = column_start(own);
#endif
    #for y in 0..BLOCKS
    #for x in 0..BLOCKS
    coopStoreT(c#y_#x, &shared_c[lower * COOPERATIVE * TILE_N + column + #(x * COOPERATIVE)], TILE_N);
    #end
    workgroupBarrier();
    for (var i = index / 16u; i < 2u * COOPERATIVE; i += 8u) {
        let row = tile.row + i / COOPERATIVE * PART + #(y * COOPERATIVE) + i % COOPERATIVE;
        let at = i * TILE_N + slot * 4u;
        var sums = Accum4(shared_c[at], shared_c[at + 1u], shared_c[at + 2u], shared_c[at + 3u]);
#ifdef ROW_START
        sums += row_start(row & ~3u, tile.z)[row & 3u];
#endif
#ifdef COLUMN_START
        sums += start;
#endif
        if row < tile.rows {
            store_c(row, own, sums);
        }
    }
    workgroupBarrier();
    #end
}
#else
// Vectors of four rows and of four columns in a tile.
const TILE_ROWS = TILE_M / 4u;
const TILE_COLUMNS = TILE_N / 4u;
// Invocations next to each other along a row of the tile.
const ALONG = TILE_COLUMNS / COLUMN_VECTORS;
const GEMM_INVOCATIONS = TILE_ROWS / ROW_VECTORS * ALONG;

// [k][row / 4] and [k][column / 4]
var<workgroup> shared_a: array<Accum4, 16 * TILE_ROWS>;
var<workgroup> shared_b: array<Accum4, 16 * TILE_COLUMNS>;

fn gemm(tile: Tile, steps: Steps, index: u32) {
    // Each load is of four rows of A or of four columns of B at one step, first all of A. Where all invocations load from the
    // same, the conditions are constant.
    #for i in 0..LOADS
    let load#i = index + #iu * GEMM_INVOCATIONS;
    let is_a#i = #(i + 1) * GEMM_INVOCATIONS <= TILE_M || load#i < TILE_M;
    let is_b#i = #(i + 1) * GEMM_INVOCATIONS <= TILE_M + TILE_N || load#i < TILE_M + TILE_N;
    let rows#i = rows_at(tile.row + load#i % TILE_ROWS * 4u, tile.z);
    let columns#i = columns_at(tile.column + (load#i - TILE_M) % TILE_COLUMNS * 4u, tile.z);
    #end
    // The first of an invocation's vectors of rows, which lie next to each other, and of columns, which lie ALONG apart, so that
    // neighbours read neighbours.
    let row = index / ALONG * ROW_VECTORS;
    let column = index % ALONG;
#ifdef ROW_START
    #for y in 0..ROW_VECTORS
    let start#y = row_start(tile.row + (row + #yu) * 4u, tile.z);
    #for r in 0..4
    #for x in 0..COLUMN_VECTORS
    var c#(y * 4 + r)_#x = Accum4(start#y[#r]);
    #end
    #end
    #end
#else
    #for x in 0..COLUMN_VECTORS
#ifdef COLUMN_START
    let start#x = column_start(columns_at(tile.column + (column + #xu * ALONG) * 4u, tile.z));
#else
    let start#x = Accum4();
#endif
    #for y in 0..ROW_VECTORS
    #for r in 0..4
    var c#(y * 4 + r)_#x = start#x;
    #end
    #end
    #end
#endif
    for (var first = steps.begin; first < steps.end; first += 4u) {
        #for i in 0..LOADS
        if is_a#i {
            let along = load#i / TILE_ROWS;
            var block = Block();
            if first + along < steps.end {
                block = transpose(load_a(rows#i, first + along));
            }
            #for j in 0..4
            shared_a[(along * 4u + #ju) * TILE_ROWS + load#i % TILE_ROWS] = block[#j];
            #end
        } else if is_b#i {
            let along = (load#i - TILE_M) / TILE_COLUMNS;
            var block = Block();
            if first + along < steps.end {
                block = load_b(columns#i, first + along);
            }
            #for j in 0..4
            shared_b[(along * 4u + #ju) * TILE_COLUMNS + (load#i - TILE_M) % TILE_COLUMNS] = block[#j];
            #end
        }
        #end
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            #for y in 0..ROW_VECTORS
            let a#y = shared_a[k * TILE_ROWS + row + #yu];
            #end
            #for x in 0..COLUMN_VECTORS
            let b#x = shared_b[k * TILE_COLUMNS + column + #xu * ALONG];
            #end
            #for y in 0..ROW_VECTORS
            #for r in 0..4
            #for x in 0..COLUMN_VECTORS
            c#(y * 4 + r)_#x += a#y[#r] * b#x;
            #end
            #end
            #end
        }
        workgroupBarrier();
    }
    #for x in 0..COLUMN_VECTORS
    let own#x = columns_at(tile.column + (column + #xu * ALONG) * 4u, tile.z);
    #end
    #for y in 0..ROW_VECTORS
    #for r in 0..4
    if tile.row + (row + #yu) * 4u + #ru < tile.rows {
        #for x in 0..COLUMN_VECTORS
        store_c(tile.row + (row + #yu) * 4u + #ru, own#x, c#(y * 4 + r)_#x);
        #end
    }
    #end
    #end
}
#endif
#endif
