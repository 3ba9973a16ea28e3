// Part of a function body: what is read for one block, SPAN_H rows of SPAN_W pixels from (region_y, region_x) of a plane on.
// Below zero these wrap around to numbers that no image is as large as. One name for each pixel, not an array: some
// compilers keep arrays in memory and copy them, or take minutes to find out that they need not.
#for c in 0..SPAN_W
let x#c = region_x + #(c + c / STEP_W * GAP_W)u * params.source_step_w;
#end
#for r in 0..SPAN_H
let y#r = region_y + #(r + r / STEP_H * GAP_H)u * params.source_step_h;
let row#r = (region_plane * params.source_h + y#r) * params.source_w;
let exists#r = y#r < params.source_h;
#for c in 0..SPAN_W
let exists#r_#c = exists#r && x#c < params.source_w;
let region_#r_#c = select(Accum(), Accum(source[select(0u, row#r + x#c, exists#r_#c)]), exists#r_#c);
#end
#end
