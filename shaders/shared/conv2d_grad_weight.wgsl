// The matrices of grad_weight, whose parameters and bindings are those of conv2d.wgsl: A is grad_output, B the input.

struct Columns {
    column: u32,
    // Group, part of the sum, and column of C; how far the next row is.
    c_at: u32,
    row_stride: u32,
    // Channel's plane.
    plane: vec4<u32>,
    // Position of the kernel's tap, relative to the output pixel times the stride. May be below zero, wrapping around.
    y: vec4<u32>,
    x: vec4<u32>,
}

fn rows_at(row: u32, z: u32) -> Rows {
    let group = z / params.splits;
    let channel = group * params.rows + min(row + LANES, vec4<u32>(params.rows - 1u));
    return Rows(channel * (params.dest_h * params.dest_w));
}

fn columns_at(column: u32, z: u32) -> Columns {
    let group = z / params.splits;
    let at = min(column + LANES, vec4<u32>(params.columns - 1u));
    let channel = at / vec4<u32>(params.taps);
    let tap = at - channel * params.taps;
    let ky = tap / vec4<u32>(params.kernel_w);
    let kx = tap - ky * params.kernel_w;
    return Columns(
        column,
        group * params.rows * params.columns + (z - group * params.splits) * params.c_split + column,
        params.columns,
        (group * params.channels + channel) * (params.source_h * params.source_w),
        ky * params.dilation_h - params.padding_h,
        kx * params.dilation_w - params.padding_w,
    );
}

// The sample of a step, and the first of its pixels.
fn pixel_at(step: u32) -> vec2<u32> {
    let sample = divide(step, params.inner_steps);
    return vec2<u32>(sample, (step - sample * params.inner_steps) * 4u);
}

fn load_a(rows: Rows, step: u32) -> Block {
    let at = pixel_at(step);
    let plane = params.dest_h * params.dest_w;
    let base = rows.at + at.x * params.groups * params.rows * plane;
#ifdef VEC_A
    #for r in 0..4
    let row#r = Accum4(a[(base[#r] + at.y) >> 2u]);
    #end
#else
    let pixels = min(at.y + LANES, vec4<u32>(plane - 1u));
    let exists = at.y + LANES < vec4<u32>(plane);
    #for r in 0..4
    let i#r = base[#r] + pixels;
    let row#r = select(Accum4(), Accum4(a_scalar(i#r.x), a_scalar(i#r.y), a_scalar(i#r.z), a_scalar(i#r.w)), exists);
    #end
#endif
    return Block(row0, row1, row2, row3);
}

fn load_b(columns: Columns, step: u32) -> Block {
    let at = pixel_at(step);
    let image = at.x * params.groups * params.channels * (params.source_h * params.source_w) + columns.plane;
#ifdef VEC_B
    #for j in 0..4
    let column#j = Accum4(source[(image[#j] + at.y) >> 2u]);
    #end
    return transpose(Block(column0, column1, column2, column3));
#else
    #for j in 0..4
    let row#j = divide(at.y + #ju, params.dest_w);
    let y#j = columns.y + row#j * STRIDE_H;
    let x#j = columns.x + (at.y + #ju - row#j * params.dest_w) * STRIDE_W;
#ifdef VEC_A
    let valid#j = (y#j < vec4<u32>(params.source_h)) & (x#j < vec4<u32>(params.source_w));
#else
    let exists#j = vec4<bool>(at.y + #ju < params.dest_h * params.dest_w);
    let valid#j = exists#j & (y#j < vec4<u32>(params.source_h)) & (x#j < vec4<u32>(params.source_w));
#endif
    let k#j = gather(image + select(vec4<u32>(), y#j * params.source_w + x#j, valid#j), valid#j);
    #end
    return Block(k0, k1, k2, k3);
#endif
}

fn store_c(row: u32, columns: Columns, value: Accum4) {
    let i = columns.c_at + row * columns.row_stride;
#ifdef BY_ELEMENT
    #for j in 0..4
    if columns.column + #ju < params.columns {
        output[i + #ju] = Storage(value[#j]);
    }
    #end
#else
    if columns.column < params.columns {
        output[i >> 2u] = Storage4(value);
    }
#endif
}
