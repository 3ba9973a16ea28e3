//! The number type of native forms: f32 whose functions the compiler can vectorize.
//!
//! All functions are within 2.5 units in the last place of the exact value, on denormals too, `erf` within 8; of infinities and
//! NaN they make what the standard library does. They add and multiply without fusing both, so the bits do not depend on the
//! width of the vectors. Sine, cosine and powers are computed in f64; angles beyond 2²⁸ lose digits.
//!
//! Sources: polynomials of `exp` and `ln` from S. L. Moshier's Cephes (`expf`, `logf`), of `sin` and `cos` from FreeBSD's
//! msun (`k_sinf`, `k_cosf`), of `erf` from Eigen (`generic_fast_erf_float`).

// Coefficients have the digits that were published.
#![allow(clippy::excessive_precision)]

use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// An f32. Its functions have no branches and no calls, so that a loop over them becomes vectors; the same bits on all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(transparent)]
pub(crate) struct Fast(pub(crate) f32);

/// Added to a number below 2²², leaves its nearest integer in the lowest bits.
const ROUND: f32 = 12_582_912.0;
/// The same for f64, below 2⁵¹.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts, of which the first times an exponent is exact.
const LN_2: [f32; 2] = [0.693_359_375, -2.121_944_4e-4];

/// `coefficients[0] + coefficients[1] · x + …`
macro_rules! polynomial {
    ($x:expr; $last:expr) => { $last };
    ($x:expr; $first:expr, $($rest:expr),+) => { $first + $x * polynomial!($x; $($rest),+) };
}

/// x held between two limits; NaN stays NaN.
#[inline(always)]
fn hold(x: f32, least: f32, most: f32) -> f32 {
    let x = if x < least { least } else { x };
    if x > most { most } else { x }
}

/// 2ⁿ, of n from −126 to 127; 0 for −127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// x · 2ⁿ, for n from −252 to 254, by two factors: 2ⁿ alone may not be a number.
#[inline(always)]
fn scaled(x: f32, n: i32) -> f32 {
    let both = n.wrapping_add(254) as u32;
    let half = both >> 1;
    x * f32::from_bits(half << 23) * f32::from_bits((both - half) << 23)
}

/// x as n · ln 2 + r, with |r| ≤ ln 2 / 2: (n, r, eʳ − 1).
#[inline(always)]
fn reduced_exp(x: f32) -> (i32, f32) {
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let p =
        polynomial!(r; 5.000_000_1e-1, 1.666_666_5e-1, 4.166_579_6e-2, 8.333_452e-3, 1.398_199_9e-3, 1.987_569_1e-4);
    ((rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), r + r * r * p)
}

/// The logarithm of a positive number as e · ln 2 + ln m, with m between √½ and √2.
#[inline(always)]
fn finite_ln(x: f32) -> f32 {
    let is_small = x < f32::MIN_POSITIVE;
    let x = if is_small { x * 8_388_608.0 } else { x };
    let bits = x.to_bits() as i32;
    // √½ begins a binade.
    let e = bits.wrapping_sub(0x3f35_04f3) >> 23;
    let m = f32::from_bits(bits.wrapping_sub(e << 23) as u32) - 1.0;
    let e = e as f32 - if is_small { 23.0 } else { 0.0 };
    let p = polynomial!(
        m; 3.333_333_1e-1, -2.499_999_4e-1, 2.000_071_5e-1, -1.666_805_8e-1, 1.424_932_3e-1, -1.242_014_1e-1,
        1.167_699_9e-1, -1.151_461e-1, 7.037_683_6e-2
    );
    let square = m * m;
    let low = m * square * p + e * LN_2[1] - 0.5 * square;
    m + low + e * LN_2[0]
}

impl Fast {
    /// e to the power of self.
    #[inline(always)]
    pub(crate) fn exp(self) -> Self {
        let (n, p) = reduced_exp(hold(self.0, -105.0, 89.0));
        Fast(scaled(1.0 + p, n))
    }

    /// e to the power of self, less 1.
    #[inline(always)]
    pub(crate) fn exp_m1(self) -> Self {
        let (n, p) = reduced_exp(hold(self.0, -20.0, 89.0));
        // 2ⁿ · (p + 1 − 2⁻ⁿ), where 2⁻¹²⁸ does not matter.
        let one = power_of_two(n.wrapping_neg().max(-127));
        let exp_m1 = scaled(p + (1.0 - one), n);
        // −0 stays so.
        Fast(if self.0 == 0.0 { self.0 } else { exp_m1 })
    }

    /// Natural logarithm.
    #[inline(always)]
    pub(crate) fn ln(self) -> Self {
        let x = self.0;
        let ln = finite_ln(x);
        let ln = if x == 0.0 { f32::NEG_INFINITY } else { ln };
        let ln = if x < 0.0 { f32::NAN } else { ln };
        // Infinity and NaN.
        Fast(if x < f32::INFINITY { ln } else { x })
    }

    /// ln(1 + self).
    #[inline(always)]
    pub(crate) fn ln_1p(self) -> Self {
        let x = self.0;
        let sum = 1.0 + x;
        // What the sum has lost.
        let lost = if x.abs() < 1.0 { x - (sum - 1.0) } else { 1.0 - (sum - x) };
        let ln = finite_ln(sum) + lost / sum;
        let ln = if sum == 0.0 { f32::NEG_INFINITY } else { ln };
        let ln = if sum < 0.0 { f32::NAN } else { ln };
        let ln = if x == 0.0 { x } else { ln };
        Fast(if x < f32::INFINITY { ln } else { x })
    }

    /// Hyperbolic tangent.
    #[inline(always)]
    pub(crate) fn tanh(self) -> Self {
        // From 9.02 on it is 1.
        let exp_m1 = Fast(hold(self.0.abs(), 0.0, 9.5) * 2.0).exp_m1().0;
        Fast((exp_m1 / (exp_m1 + 2.0)).copysign(self.0))
    }

    /// Sine. Beyond 2²⁸ it loses digits.
    #[inline(always)]
    pub(crate) fn sin(self) -> Self {
        quarters(self.0, 0)
    }

    /// Cosine. Beyond 2²⁸ it loses digits.
    #[inline(always)]
    pub(crate) fn cos(self) -> Self {
        quarters(self.0, 1)
    }

    /// The error function.
    #[inline(always)]
    pub(crate) fn erf(self) -> Self {
        let x = hold(self.0, -4.0, 4.0);
        let square = x * x;
        let p = polynomial!(
            square; -1.609_603_332_624_15e-2, -2.954_599_808_540_25e-3, -7.349_906_303_268_55e-4, -5.692_506_394_623_46e-5,
            -2.101_024_020_825_08e-6, 2.770_681_424_959_02e-8, -2.726_142_258_013_06e-10
        );
        let q = polynomial!(
            square; -1.426_473_905_141_89e-2, -7.373_329_167_204_68e-3, -1.682_826_974_382_03e-3, -2.133_740_552_787_90e-4,
            -1.456_607_184_649_96e-5
        );
        let erf = x * (p / q);
        // NaN stays NaN.
        Fast(if x.abs() >= 3.9 { 1f32.copysign(x) } else { erf })
    }

    /// Square root.
    #[inline(always)]
    pub(crate) fn sqrt(self) -> Self {
        Fast(self.0.sqrt())
    }

    /// Absolute value.
    #[inline(always)]
    pub(crate) fn abs(self) -> Self {
        Fast(self.0.abs())
    }

    /// The larger of two; of a number and NaN, the number.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        if self.0 > other.0 || other.is_nan() { self } else { other }
    }

    /// The smaller of two; of a number and NaN, the number.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        if self.0 < other.0 || other.is_nan() { self } else { other }
    }

    /// self to the power of a number.
    #[inline(always)]
    pub(crate) fn powf(self, exponent: f64) -> Self {
        let x = f64::from(self.0);
        let magnitude = x.abs();
        // log₂ of m · 2ᵉ by the series of atanh((m − 1) / (m + 1)).
        let bits = magnitude.to_bits() as i64;
        let e = (bits - 0x3fe6_a09e_667f_3bcd) >> 52;
        let m = f64::from_bits((bits - (e << 52)) as u64);
        let e = f64::from_bits((e + ROUND_F64.to_bits() as i64) as u64) - ROUND_F64;
        let f = (m - 1.0) / (m + 1.0);
        let p = polynomial!(
            f * f; 1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0
        );
        let log2 = e + 2.0 * std::f64::consts::LOG2_E * f * p;
        // Far enough that all exponents but 0 lead to 0 or infinity.
        let log2 = if magnitude == 0.0 { -1e300 } else { log2 };
        let log2 = if magnitude < f64::INFINITY { log2 } else { 1e300 };
        let y = log2 * exponent;
        let y = if y < -200.0 { -200.0 } else { y };
        let y = if y > 200.0 { 200.0 } else { y };
        let rounded = y + ROUND_F64;
        let r = (y - (rounded - ROUND_F64)) * std::f64::consts::LN_2;
        let p = polynomial!(
            r; 1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40_320.0,
            1.0 / 362_880.0
        );
        let n = (rounded.to_bits() as i64).wrapping_sub(ROUND_F64.to_bits() as i64);
        let power = p * f64::from_bits((n.wrapping_add(1023) << 52) as u64);
        let is_odd = exponent % 2.0 == 1.0 || exponent % 2.0 == -1.0;
        let of_negative = if is_odd { -power } else { power };
        let is_integer = exponent % 1.0 == 0.0;
        let of_negative =
            if is_integer || magnitude == 0.0 || magnitude == f64::INFINITY { of_negative } else { f64::NAN };
        let power = if x.is_sign_negative() { of_negative } else { power };
        let power = if magnitude <= f64::INFINITY { power } else { x };
        Fast(if exponent == 0.0 { 1.0 } else { power as f32 })
    }

    /// Neither infinite nor NaN.
    #[inline(always)]
    pub(crate) fn is_finite(self) -> bool {
        self.0.abs() < f32::INFINITY
    }

    /// Not a number.
    #[inline(always)]
    pub(crate) fn is_nan(self) -> bool {
        self.0.is_nan()
    }
}

/// The sine of an angle and so many quarters of a turn.
#[inline(always)]
fn quarters(angle: f32, quarters: u64) -> Fast {
    // π/2 in two parts, of which the first times an integer below 2²⁸ is exact.
    const QUARTER: [f64; 2] = [1.570_796_310_901_641_8, 1.589_325_477_352_819_6e-8];
    let x = f64::from(angle);
    let rounded = x * std::f64::consts::FRAC_2_PI + ROUND_F64;
    let n = rounded - ROUND_F64;
    let r = x - n * QUARTER[0] - n * QUARTER[1];
    // Where the angle is so large that no digit of it is left.
    let r = if r < -0.8 { -0.8 } else { r };
    let r = if r > 0.8 { 0.8 } else { r };
    let z = r * r;
    let sin = polynomial!(
        z; 1.0, -0.166_666_666_416_265_235_595, 0.008_333_329_385_889_463_175_6, -0.000_198_393_348_360_966_317_347,
        0.000_002_718_311_493_989_821_906_4
    );
    let cos = polynomial!(
        z; 1.0, -0.499_999_997_251_031_003_12, 0.041_666_623_323_739_063_189_4, -0.001_388_676_377_460_992_946_92,
        0.000_024_390_448_796_277_409_065_4
    );
    let quarter = rounded.to_bits().wrapping_add(quarters);
    let magnitude = if quarter & 1 == 1 { cos } else { r * sin };
    let signed = if quarter & 2 == 2 { -magnitude } else { magnitude };
    Fast(if angle.is_finite() { signed as f32 } else { f32::NAN })
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $assign_trait:ident $assign:ident $op:tt;)*) => {
        $(
            impl $trait for Fast {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    Fast(self.0 $op other.0)
                }
            }

            impl $assign_trait for Fast {
                #[inline(always)]
                fn $assign(&mut self, other: Self) {
                    *self = *self $op other;
                }
            }
        )*
    };
}

arithmetic! {
    Add add AddAssign add_assign +;
    Sub sub SubAssign sub_assign -;
    Mul mul MulAssign mul_assign *;
    Div div DivAssign div_assign /;
}

impl Neg for Fast {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Fast(-self.0)
    }
}

impl PartialOrd for Fast {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.0.partial_cmp(&other.0)
    }
    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.0 < other.0
    }
    #[inline(always)]
    fn le(&self, other: &Self) -> bool {
        self.0 <= other.0
    }
    #[inline(always)]
    fn gt(&self, other: &Self) -> bool {
        self.0 > other.0
    }
    #[inline(always)]
    fn ge(&self, other: &Self) -> bool {
        self.0 >= other.0
    }
}

impl std::fmt::Display for Fast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance of two f32 at a number.
    fn unit(x: f64) -> f64 {
        let x = (x.abs() as f32).max(f32::MIN_POSITIVE);
        f64::from(f32::from_bits(x.to_bits() + 1)) - f64::from(x)
    }

    /// Compares a function over all of f32 up to a limit, in units in the last place.
    fn check(name: &str, fast: impl Fn(Fast) -> Fast, exact: impl Fn(f64) -> f64, units: f64, limit: f32) {
        let specials = [0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let spread = (0..=u32::MAX).step_by(40_009).map(f32::from_bits);
        for x in spread.filter(|x| !x.is_finite() || x.abs() <= limit).chain(specials) {
            let (found, exact) = (fast(Fast(x)).0, exact(f64::from(x)));
            let expected = exact as f32;
            let is_same = found == expected && found.is_sign_negative() == expected.is_sign_negative();
            let error = (f64::from(found) - exact).abs() / unit(exact);
            assert!(
                is_same || (found.is_nan() && expected.is_nan()) || error <= units,
                "{name}({x:e}) = {found:e}, not {expected:e}"
            );
        }
    }

    #[test]
    fn functions_are_as_exact_as_the_head_says() {
        check("exp", Fast::exp, f64::exp, 1.0, f32::MAX);
        check("exp_m1", Fast::exp_m1, f64::exp_m1, 1.5, f32::MAX);
        check("ln", Fast::ln, f64::ln, 0.8, f32::MAX);
        check("ln_1p", Fast::ln_1p, f64::ln_1p, 1.5, f32::MAX);
        check("tanh", Fast::tanh, f64::tanh, 2.5, f32::MAX);
        check("erf", Fast::erf, libm::erf, 8.0, f32::MAX);
        check("sin", Fast::sin, f64::sin, 0.51, 2f32.powi(28));
        check("cos", Fast::cos, f64::cos, 0.51, 2f32.powi(28));
        check("sqrt", Fast::sqrt, f64::sqrt, 0.5, f32::MAX);
        for exponent in [2.0, 3.0, -1.0, -2.0, 0.5, 1.7, -0.3, 0.0, 300.0, 1e-3] {
            check("powf", |x| x.powf(exponent), |x| x.powf(exponent), 0.51, f32::MAX);
        }
    }

    #[test]
    fn sines_of_any_angle_are_sines() {
        for x in [1e10f32, -3e20, f32::MAX] {
            assert!(Fast(x).sin().0.abs() <= 1.0 && Fast(x).cos().0.abs() <= 1.0, "{x}");
        }
    }
}
