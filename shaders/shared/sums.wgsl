// Long sums in f32. The importing file defines `alias Term`, what is added up. Terms are added in blocks, blocks in groups of as
// many, and groups to each other: one after the other, equal terms would all be rounded to the same side once the sum is much
// larger than a term.
const BLOCK_TERMS: u32 = 32u;

struct LongSum {
    groups: Term,
    blocks: Term,
    block: Term,
    terms: u32,
}

fn add_term(sum: ptr<function, LongSum>, term: Term) {
    (*sum).block += term;
    (*sum).terms += 1u;
    if (*sum).terms % BLOCK_TERMS == 0u {
        (*sum).blocks += (*sum).block;
        (*sum).block = Term();
        if (*sum).terms == BLOCK_TERMS * BLOCK_TERMS {
            (*sum).groups += (*sum).blocks;
            (*sum).blocks = Term();
            (*sum).terms = 0u;
        }
    }
}

fn total_of(sum: LongSum) -> Term {
    return sum.groups + (sum.blocks + sum.block);
}
