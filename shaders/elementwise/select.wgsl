// output = a where condition is not 0, else b. Either may be a number. The gradient of a is grad_output where condition is not 0,
// else 0, and that of b the other way round: launches of the same functions.
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.where.html

// By bits: a device may take numbers below 2^-126 for 0, and NaN for anything.
fn select_is_set(condition: Accum4) -> vec4<bool> {
    return (bitcast<vec4<u32>>(condition) & vec4<u32>(0x7fffffffu)) != vec4<u32>(0u);
}

fn select_forward(condition: Accum4, a: Accum4, b: Accum4) -> Accum4 {
    return select(b, a, select_is_set(condition));
}

fn select_number_or_tensor(condition: Accum4, b: Accum4, a: f32) -> Accum4 {
    return select(b, Accum4(a), select_is_set(condition));
}

fn select_tensor_or_number(condition: Accum4, a: Accum4, b: f32) -> Accum4 {
    return select(Accum4(b), a, select_is_set(condition));
}

fn select_numbers(condition: Accum4, a: f32, b: f32) -> Accum4 {
    return select(Accum4(b), Accum4(a), select_is_set(condition));
}
