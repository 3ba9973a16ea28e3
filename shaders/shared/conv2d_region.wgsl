// Part of a function body: what is read for one block, SPAN_H rows of SPAN_W pixels from (region_y, region_x) of a plane on.
// Below zero these wrap around to numbers that no image is as large as. One name for each pixel, not an array: some
// compilers keep arrays in memory and copy them, or take minutes to find out that they need not.
#ifdef PAIRS
// Neighbours lie in pairs, of which a row has whole ones; the first pixel is the second of its pair where ODD is 1.
let pair_x = u32(i32(region_x - ODD) >> 1u);
#else
#for c in 0..SPAN_W
let x#c = region_x + #(c + c / STEP_W * GAP_W)u * params.source_step_w;
#end
#endif
#for r in 0..SPAN_H
let y#r = region_y + #(r + r / STEP_H * GAP_H)u * params.source_step_h;
let row#r = (region_plane * params.source_h + y#r) * params.source_w;
let exists#r = y#r < params.source_h;
#ifdef PAIRS
#for p in 0..PAIRS
let exists#r_#p = exists#r && pair_x + #pu < params.source_w / 2u;
let pair#r_#p = select(Accum2(), Accum2(source[select(0u, row#r / 2u + pair_x + #pu, exists#r_#p)]), exists#r_#p);
#end
#for c in 0..SPAN_W
let region_#r_#c = pair#r_#((c + ODD) / 2)[#((c + ODD) % 2)];
#end
#else
#for c in 0..SPAN_W
let exists#r_#c = exists#r && x#c < params.source_w;
let region_#r_#c = select(Accum(), Accum(source[select(0u, row#r + x#c, exists#r_#c)]), exists#r_#c);
#end
#endif
#end
