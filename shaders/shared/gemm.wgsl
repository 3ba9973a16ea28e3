// The tile of a matrix product that one workgroup computes: C[row, column] = sum over (outer, k) of A[row, k] * B[k, column].
//
// The importing file completes it:
//   struct Rows, fn rows_at(row, z) -> Rows           where four rows of A from `row` on lie in memory
//   struct Columns, fn columns_at(column, z)          the same for four columns of B
//   fn enter_rows(rows, outer), fn enter_columns(..)  moves them to one step of the outer loop
//   fn load_a(rows, k) -> Block                       four k from `k` on: block[r] holds row r
//   fn load_b(columns, k) -> Block                    block[j] holds the four columns at k + j
//   fn load_a_single(rows, k), load_b_single(..)      four rows, or columns, at one k
//   fn store_c(row, columns, value)                   four columns of a row below the tile's limit
//   with ROW_START fn row_start(row, z) -> Accum4     what the sums of four rows start from, otherwise 0
//   with COLUMN_START fn column_start(columns)        the same for four columns
// K_TAIL is defined where the number of k may leave a remainder by 4 (leaving the code out saves a fifth of the time that a
// driver needs to compile the rest).
// Rows and columns past the edge are loaded too: `rows_at` and `columns_at` clamp them to memory that exists.
//
// With SUBGROUPS a workgroup is one subgroup. Its tile of C stays in registers, each lane loads other rows of A and other
// columns of B, and A reaches all lanes by broadcast: no workgroup memory, no barrier, and few loads, which software
// drivers do lane by lane. Otherwise 128 invocations share blocks of A and B of 16 k through workgroup memory (8 KiB).

// Four vectors of four.
alias Block = mat4x4<f32>;

// What a workgroup computes.
struct Tile {
    row: u32,
    column: u32,
    // Rows of C: none is stored from here on.
    rows: u32,
    // Batch, group or part of a split sum: handed on to `rows_at` and `columns_at`.
    z: u32,
}

// The terms of the sum.
struct Terms {
    outer_begin: u32,
    outer_end: u32,
    k_begin: u32,
    k_end: u32,
}

#ifdef SUBGROUPS
const GEMM_INVOCATIONS = SUBGROUP_SIZE;

fn gemm(tile: Tile, terms: Terms, lane: u32) {
    // Indexed by constants only, so these are registers.
    var acc: array<Accum4, TILE_M>;
    #for p in 0..PANELS
    let rows#p = rows_at(tile.row + (#p * SUBGROUP_SIZE + lane) * 4u, tile.z);
    #end
#ifdef ROW_START
    #for p in 0..PANELS
    let start#p = row_start(tile.row + (#p * SUBGROUP_SIZE + lane) * 4u, tile.z);
    #for lane in 0..SUBGROUP_SIZE
    #for r in 0..4
    acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r] = Accum4(subgroupBroadcast(start#p[#r], #laneu));
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
    let k_full = terms.k_begin + ((terms.k_end - terms.k_begin) & ~3u);
    for (var outer = terms.outer_begin; outer < terms.outer_end; outer++) {
        #for p in 0..PANELS
        let a_rows#p = enter_rows(rows#p, outer);
        #end
        let b_columns = enter_columns(columns, outer);
        for (var k = terms.k_begin; k < k_full; k += 4u) {
            #for p in 0..PANELS
            let a#p = load_a(a_rows#p, k);
            #end
            let block = load_b(b_columns, k);
            #for p in 0..PANELS
            #for lane in 0..SUBGROUP_SIZE
            #for r in 0..4
            {
                let a = subgroupBroadcast(a#p[#r], #laneu);
                acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r] += a.x * block[0];
                acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r] += a.y * block[1];
                acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r] += a.z * block[2];
                acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r] += a.w * block[3];
            }
            #end
            #end
            #end
        }
#ifdef K_TAIL
        for (var k = k_full; k < terms.k_end; k++) {
            #for p in 0..PANELS
            let a#p = load_a_single(a_rows#p, k);
            #end
            let b = load_b_single(b_columns, k);
            #for p in 0..PANELS
            #for lane in 0..SUBGROUP_SIZE
            #for r in 0..4
            acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r] += subgroupBroadcast(a#p[#r], #laneu) * b;
            #end
            #end
            #end
        }
#endif
    }
    #for p in 0..PANELS
    #for lane in 0..SUBGROUP_SIZE
    #for r in 0..4
    if tile.row + (#p * SUBGROUP_SIZE + #lane) * 4 + #r < tile.rows {
        store_c(tile.row + (#p * SUBGROUP_SIZE + #lane) * 4 + #r, columns, acc[(#p * SUBGROUP_SIZE + #lane) * 4 + #r]);
    }
    #end
    #end
    #end
}
#else
const GEMM_INVOCATIONS = 128u;

// [k][row / 4] and [k][column / 4]
var<workgroup> shared_a: array<Accum4, 256>;
var<workgroup> shared_b: array<Accum4, 256>;

// Four rows by four k; zero from `k_end` on.
fn masked_a(rows: Rows, k: u32, k_end: u32) -> Block {
    if k + 4u <= k_end {
        return transpose(load_a(rows, k));
    }
    var block = Block();
    #for j in 0..3
    if k + #ju < k_end {
        block[#j] = load_a_single(rows, k + #ju);
    }
    #end
    return block;
}

fn masked_b(columns: Columns, k: u32, k_end: u32) -> Block {
    if k + 4u <= k_end {
        return load_b(columns, k);
    }
    var block = Block();
    #for j in 0..3
    if k + #ju < k_end {
        block[#j] = load_b_single(columns, k + #ju);
    }
    #end
    return block;
}

fn gemm(tile: Tile, terms: Terms, index: u32) {
    // Half of the invocations load a block of A each, half a block of B.
    let loads_b = index >= 64u;
    let slot = index & 15u;
    let k_slot = (index >> 2u) & 12u;
    let rows = rows_at(tile.row + slot * 4u, tile.z);
    let columns = columns_at(tile.column + slot * 4u, tile.z);
    // Each computes 8 rows by 4 columns.
    let y = (index >> 4u) * 2u;
    let x = index & 15u;
#ifdef ROW_START
    let start_low = row_start(tile.row + y * 4u, tile.z);
    let start_high = row_start(tile.row + y * 4u + 4u, tile.z);
    #for r in 0..4
    var c#r = Accum4(start_low[#r]);
    #end
    #for r in 4..8
    var c#r = Accum4(start_high[#r - 4]);
    #end
#else
#ifdef COLUMN_START
    let start = column_start(columns_at(tile.column + x * 4u, tile.z));
    #for r in 0..8
    var c#r = start;
    #end
#else
    #for r in 0..8
    var c#r = Accum4();
    #end
#endif
#endif
    for (var outer = terms.outer_begin; outer < terms.outer_end; outer++) {
        let a_rows = enter_rows(rows, outer);
        let b_columns = enter_columns(columns, outer);
        for (var k_tile = terms.k_begin; k_tile < terms.k_end; k_tile += 16u) {
            if loads_b {
                let block = masked_b(b_columns, k_tile + k_slot, terms.k_end);
                #for j in 0..4
                shared_b[(k_slot + #ju) * 16u + slot] = block[#j];
                #end
            } else {
                let block = masked_a(a_rows, k_tile + k_slot, terms.k_end);
                #for j in 0..4
                shared_a[(k_slot + #ju) * 16u + slot] = block[#j];
                #end
            }
            workgroupBarrier();
            for (var k = 0u; k < 256u; k += 16u) {
                let a0 = shared_a[k + y];
                let a1 = shared_a[k + y + 1u];
                let b = shared_b[k + x];
                #for r in 0..4
                c#r += a0[#r] * b;
                #end
                #for r in 4..8
                c#r += a1[#r - 4] * b;
                #end
            }
            workgroupBarrier();
        }
    }
    let own = columns_at(tile.column + x * 4u, tile.z);
    #for r in 0..8
    if tile.row + y * 4u + #ru < tile.rows {
        store_c(tile.row + y * 4u + #ru, own, c#r);
    }
    #end
}
#endif
