//! Comparing tensors within tolerances.

/// How far apart numbers may be: `scale * largest |expected| + relative * |expected|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub scale: f64,
    pub relative: f64,
}

impl Tolerance {
    /// Widened for sums of so many terms.
    pub fn terms(self, reduction: usize) -> Self {
        let factor = (reduction.max(1) as f64).sqrt();
        Tolerance { scale: self.scale * factor, relative: self.relative }
    }
}

/// `Err` names the worst element.
pub fn close(found: &[f64], expected: &[f64], tolerance: Tolerance) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} elements instead of {}", found.len(), expected.len()));
    }
    let largest = expected.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let mut wrong = 0;
    let mut worst: Option<(f64, usize)> = None;
    for (i, (&a, &b)) in found.iter().zip(expected).enumerate() {
        // Below the smallest normal f32 a device may flush to zero.
        let allowed = tolerance.scale * largest + tolerance.relative * b.abs() + f64::from(f32::MIN_POSITIVE);
        let excess = if a == b || (a.is_nan() && b.is_nan()) {
            0.0
        } else if a.is_finite() && b.is_finite() {
            (a - b).abs() / allowed
        } else {
            f64::INFINITY
        };
        if excess > 1.0 {
            wrong += 1;
            if worst.is_none_or(|(w, _)| excess > w) {
                worst = Some((excess, i));
            }
        }
    }
    match worst {
        None => Ok(()),
        Some((excess, i)) => Err(format!(
            "{wrong} of {} elements differ, the worst [{i}] is {} instead of {} ({excess:.3} times the tolerance)",
            found.len(),
            found[i],
            expected[i]
        )),
    }
}
