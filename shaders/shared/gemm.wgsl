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
// STEP_LANES groups of so many each another step (SPREAD if there are several). Otherwise 128 invocations share blocks of A and B of 16 k through workgroup memory (8 KiB).

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

// The steps of the sum.
struct Steps {
    begin: u32,
    end: u32,
}

#ifdef SUBGROUPS
const GEMM_INVOCATIONS = SUBGROUP_SIZE;

#ifdef SPREAD
// A block, or zeros past the end of the sum.
fn below_end(block: Block, exists: bool) -> Block {
    let none = Accum4();
    return Block(
        select(none, block[0], exists),
        select(none, block[1], exists),
        select(none, block[2], exists),
        select(none, block[3], exists),
    );
}
#endif

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
        let a#p = below_end(load_a(rows#p, min(own, steps.end - 1u)), own < steps.end);
#else
        let a#p = load_a(rows#p, step);
#endif
        #end
        #for s in 0..STEP_LANES
        {
#ifdef SPREAD
            let at = step + #su;
            let block = below_end(load_b(columns, min(at, steps.end - 1u)), at < steps.end);
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
    #for p in 0..PANELS
    #for lane in 0..ROW_LANES
    #for r in 0..4
    if tile.row + (#p * ROW_LANES + #lane) * 4 + #r < tile.rows {
        store_c(tile.row + (#p * ROW_LANES + #lane) * 4 + #r, columns, acc[(#p * ROW_LANES + #lane) * 4 + #r]);
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

fn gemm(tile: Tile, steps: Steps, index: u32) {
    // Half of the invocations load a block of A each, half a block of B.
    let loads_b = index >= 64u;
    let slot = index & 15u;
    let step_slot = (index >> 4u) & 3u;
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
    for (var first = steps.begin; first < steps.end; first += 4u) {
        let step = first + step_slot;
        var block = Block();
        if loads_b {
            if step < steps.end {
                block = load_b(columns, step);
            }
            #for j in 0..4
            shared_b[(step_slot * 4u + #ju) * 16u + slot] = block[#j];
            #end
        } else {
            if step < steps.end {
                block = transpose(load_a(rows, step));
            }
            #for j in 0..4
            shared_a[(step_slot * 4u + #ju) * 16u + slot] = block[#j];
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
    let own = columns_at(tile.column + x * 4u, tile.z);
    #for r in 0..8
    if tile.row + y * 4u + #ru < tile.rows {
        store_c(tile.row + y * 4u + #ru, own, c#r);
    }
    #end
}
#endif
