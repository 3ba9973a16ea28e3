// output = 1 where a is greater than b (gt), at least b (ge), less (lt), at most b (le), equal (eq), not equal (ne), else 0. The
// functions of a number compare with that in place of b.
//
// kernel     elementwise.wgsl
// source     https://pytorch.org/docs/stable/generated/torch.gt.html and those beside it

fn compare_value(holds: vec4<bool>) -> Accum4 {
    return select(Accum4(0.0), Accum4(1.0), holds);
}

fn compare_gt(a: Accum4, b: Accum4) -> Accum4 {
    return compare_value(a > b);
}

fn compare_gt_number(a: Accum4, number: f32) -> Accum4 {
    return compare_gt(a, Accum4(number));
}

fn compare_ge(a: Accum4, b: Accum4) -> Accum4 {
    return compare_value(a >= b);
}

fn compare_ge_number(a: Accum4, number: f32) -> Accum4 {
    return compare_ge(a, Accum4(number));
}

fn compare_lt(a: Accum4, b: Accum4) -> Accum4 {
    return compare_value(a < b);
}

fn compare_lt_number(a: Accum4, number: f32) -> Accum4 {
    return compare_lt(a, Accum4(number));
}

fn compare_le(a: Accum4, b: Accum4) -> Accum4 {
    return compare_value(a <= b);
}

fn compare_le_number(a: Accum4, number: f32) -> Accum4 {
    return compare_le(a, Accum4(number));
}

fn compare_eq(a: Accum4, b: Accum4) -> Accum4 {
    return compare_value(a == b);
}

fn compare_eq_number(a: Accum4, number: f32) -> Accum4 {
    return compare_eq(a, Accum4(number));
}

fn compare_ne(a: Accum4, b: Accum4) -> Accum4 {
    return compare_value(!(a == b));
}

fn compare_ne_number(a: Accum4, number: f32) -> Accum4 {
    return compare_ne(a, Accum4(number));
}
