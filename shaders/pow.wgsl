// output = input^exponent; grad_input = grad_output * exponent * input^(exponent - 1).
//
// bindings, in place, dispatch, workgroup   see shared/activation.wgsl; `saved` is the input, `setting`
//            is the exponent
// source     https://pytorch.org/docs/stable/generated/torch.pow.html
#import "shared/activation.wgsl"
#import "shared/nan.wgsl"

// Bases of either sign take integer exponents only; the built-in function takes no negative base at all.
fn power(x: Accum4, exponent: f32) -> Accum4 {
    let size = abs(exponent);
    var result = Accum4(1.0);
    if size > 1048576.0 || floor(size) != size {
        result = exp2(size * log2(x));
        // Not every device knows the logarithms of 0 and of negative numbers.
        result = select(result, Accum4(0.0), x == Accum4(0.0));
        result = select(result, Accum4(not_a_number(params.vectors)), x < Accum4(0.0));
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

fn activation(x: Accum4) -> Accum4 {
    return power(x, params.setting);
}

fn activation_gradient(saved: Accum4, grad_output: Accum4) -> Accum4 {
    if params.setting == 0.0 {
        return Accum4(0.0);
    }
    return grad_output * params.setting * power(saved, params.setting - 1.0);
}
