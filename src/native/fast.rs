//! The number type of native forms: f32 whose functions the compiler can vectorize.
//!
//! All functions are within 2 units in the last place of the exact value, on denormals too, and give what the standard
//! library gives for infinities and NaN; the test has the exact bounds. They add and multiply without fusing both, so the
//! bits do not depend on the width of the vectors. Sine, cosine and powers are computed in f64.
//!
//! Sources: polynomials of `exp` and `ln` from S. L. Moshier's Cephes (`expf`, `logf`), of `sin` and `cos` from FreeBSD's
//! msun (`k_sinf`, `k_cosf`), of `erf` from N. Juffa's `erff` (<https://stackoverflow.com/a/35148199>).

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
    f32::from_bits(((n + 127) << 23) as u32)
}

/// x · 2ⁿ, for n from −252 to 254.
#[inline(always)]
fn scaled(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    x * power_of_two(half) * power_of_two(n - half)
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
    let e = (bits - 0x3f35_04f3) >> 23;
    let m = f32::from_bits((bits - (e << 23)) as u32) - 1.0;
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
        let one = power_of_two((-n).max(-127));
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
        let (x, t, square) = (self.0, self.0.abs(), self.0 * self.0);
        let near = polynomial!(
            square; 1.283_791_7e-1, -3.761_253_4e-1, 1.128_199_25e-1, -2.676_813_5e-2, 4.991_194_2e-3, -5.967_617e-4
        );
        let far = polynomial!(
            t; -1.287_175_1e-1, -6.348_468_7e-1, -1.067_778_8e-1, 2.425_462_2e-2, -3.883_964_4e-3, 3.831_971_3e-4,
            -1.728_534_7e-5
        );
        // From 4 on it is 1.
        let far = 1.0 - Fast(hold(t * far - t, -20.0, 0.0)).exp().0;
        let far = if t > 4.0 { 1.0 } else { far };
        Fast(if t > 0.927_734_4 { far.copysign(x) } else { x + x * near })
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
