// output = input^exponent; grad_input = grad_output * exponent * input^(exponent - 1).
//
// kernel     elementwise.wgsl; `saved` is the input
// source     https://pytorch.org/docs/stable/generated/torch.pow.html
#import "shared/nan.wgsl"

// Bases of either sign take integer exponents only; the built-in function takes no negative base at all.
fn pow_of(x: Accum4, exponent: f32) -> Accum4 {
    let size = abs(exponent);
    var result = Accum4(1.0);
    if size > 1048576.0 || floor(size) != size {
        result = exp2(size * log2(x));
        // Not every device knows the logarithms of 0 and of negative numbers.
        result = select(result, Accum4(0.0), x == Accum4(0.0));
        result = select(result, Accum4(not_a_number(runtime_number())), x < Accum4(0.0));
    } else {
        var factor = x;
        for (var left = u32(size); left > 0u; left = left >> 1u) {
            if (left & 1u) == 1u {
                result *= factor;
            }
            factor *= factor;
        }
    }
    if exponent < 0.0 {
        return 1.0 / result;
    }
    return result;
}

fn pow_forward(x: Accum4, exponent: f32) -> Accum4 {
    return pow_of(x, exponent);
}

fn pow_grad_input(saved: Accum4, grad_output: Accum4, exponent: f32) -> Accum4 {
    if exponent == 0.0 {
        return Accum4(0.0);
    }
    return grad_output * exponent * pow_of(saved, exponent - 1.0);
}
