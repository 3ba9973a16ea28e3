// Functions that stay accurate and finite where the built-in ones need not. All pass NaN on.

fn is_nan(x: f32) -> bool {
    // By bits: a compiler with fast math may take `x != x` for false.
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_nan4(x: Accum4) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

// x held between two limits. (The built-in clamp may turn NaN into a limit.)
fn hold4(x: Accum4, low: f32, high: f32) -> Accum4 {
    return select(select(x, Accum4(low), x < Accum4(low)), Accum4(high), x > Accum4(high));
}

// 1 / (1 + exp(-x)); the exponential's argument is never positive, so nothing overflows.
fn sigmoid4(x: Accum4) -> Accum4 {
    let e = exp(-abs(x));
    return select(e, Accum4(1.0), x >= Accum4(0.0)) / (1.0 + e);
}

// ln(1 + e) for e in 0..1, where the log of a number near to 1 would lose digits: 2 artanh(s) with s = e / (2 + e) <= 1/3,
// by its series.
fn ln_1p_4(e: Accum4) -> Accum4 {
    let s = e / (2.0 + e);
    let s2 = s * s;
    let series = 1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0 + s2 * (1.0 / 11.0 + s2 * (1.0 / 13.0)))));
    return 2.0 * s * (1.0 + s2 * series);
}

// exp(x) - 1 for x <= 0, with all digits near 0: its series from -1/2 on.
fn exp_m1_4(x: Accum4) -> Accum4 {
    let series = 1.0
        + x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x * (1.0 / 720.0 + x * (1.0 / 5040.0 + x * (1.0 / 40320.0)))))));
    return select(exp(x) - 1.0, x * series, x > Accum4(-0.5));
}

// The built-in tanh may overflow far out and loses all digits near 0: series up to 1/4, exponentials of negative numbers
// beyond.
fn tanh4(x: Accum4) -> Accum4 {
    let x2 = x * x;
    let series = x * (1.0 + x2 * (-1.0 / 3.0 + x2 * (2.0 / 15.0 + x2 * (-17.0 / 315.0 + x2 * (62.0 / 2835.0)))));
    let e = exp(-2.0 * abs(x));
    let far = sign(x) * ((1.0 - e) / (1.0 + e));
    return select(far, series, abs(x) < Accum4(0.25));
}

// The built-in sine and cosine may be wrong by 2^-11, and by more beyond pi. Here the nearest multiple k of pi / 2 is taken off
// in three parts, the first two of which times k are exact up to k = 4096, and series of what is left, at most pi / 4, are
// right to all digits. `quarter` is 0 for a sine, 1 for a cosine, which is a sine a quarter of a turn on.
fn sine_of_turned(x: Accum4, quarter: f32) -> Accum4 {
    let k = round(x * 0.63661977);
    // Far out there are no digits left, but the result stays a sine.
    let r = hold4(((x - k * 1.5703125) - k * 0.0004837513) - k * 7.549790e-8, -1.0, 1.0);
    let r2 = r * r;
    let sine = r * (1.0 + r2 * (-1.0 / 6.0 + r2 * (1.0 / 120.0 + r2 * (-1.0 / 5040.0 + r2 * (1.0 / 362880.0)))));
    let cosine = 1.0 + r2 * (-1.0 / 2.0 + r2 * (1.0 / 24.0 + r2 * (-1.0 / 720.0 + r2 * (1.0 / 40320.0))));
    let turned = k + quarter;
    let quadrant = turned - 4.0 * floor(turned * 0.25);
    let is_odd = (quadrant == Accum4(1.0)) | (quadrant == Accum4(3.0));
    let size = select(sine, cosine, is_odd);
    return select(size, -size, quadrant >= Accum4(2.0));
}

fn sin4(x: Accum4) -> Accum4 {
    return sine_of_turned(x, 0.0);
}

fn cos4(x: Accum4) -> Accum4 {
    return sine_of_turned(x, 1.0);
}

// (1 + erf(x / sqrt(2))) / 2, to 1e-7. With z = |x| / sqrt(2): up to z = 1 the Maclaurin series of erf (Abramowitz and
// Stegun 7.1.5), beyond exp(-z^2) * p(1 / (1 + 0.4 z)) for erfc, the form of 7.1.26. p is the Chebyshev interpolant of
// degree 8 on 0 <= z <= 6, computed for this file in 40 digits; its error is 5e-9.
fn normal_cdf4(x: Accum4) -> Accum4 {
    let z = abs(x) * 0.70710678;
    let z2 = z * z;
    // 2 / sqrt(pi) * (-1)^n / (n! (2n + 1))
    var series = Accum4(1.4807193e-8);
    series = series * z2 - 1.6365845e-7;
    series = series * z2 + 1.6462114e-6;
    series = series * z2 - 1.4925651e-5;
    series = series * z2 + 1.2055333e-4;
    series = series * z2 - 8.5483270e-4;
    series = series * z2 + 5.2239776e-3;
    series = series * z2 - 2.6866171e-2;
    series = series * z2 + 1.1283792e-1;
    series = series * z2 - 3.7612639e-1;
    series = series * z2 + 1.1283792;
    let near = 0.5 - 0.5 * series * z;
    let t = 1.0 / (1.0 + 0.4 * z);
    var p = Accum4(0.0872173235);
    p = p * t - 0.461912125;
    p = p * t + 0.835034788;
    p = p * t - 0.562477827;
    p = p * t + 0.552898169;
    p = p * t + 0.0708704591;
    p = p * t + 0.256424218;
    p = p * t + 0.221723199;
    p = p * t + 0.000221773895;
    let far = 0.5 * p * exp(-z2);
    // The area beyond |x|.
    let tail = select(far, near, z < Accum4(1.0));
    return select(tail, 1.0 - tail, x >= Accum4(0.0));
}
