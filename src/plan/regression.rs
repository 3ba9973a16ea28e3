//! Fits with coefficients that are not negative.

/// What a value should be a sum of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<const N: usize> {
    /// What each coefficient is multiplied with.
    pub(super) terms: [f64; N],
    /// The value, above 0.
    pub(super) value: f64,
}

/// Coefficients of at least 0 with which the sums of terms come closest to the values, by the relative errors
/// themselves more than by their squares, so that a few bad values do little harm. The error of a larger value counts
/// more, by its root, since sums of values are what is asked for. Zeros without samples.
pub(super) fn least_errors<const N: usize>(samples: &[Sample<N>]) -> [f64; N] {
    // Rows divided by their value, columns by their largest entry: numbers of one magnitude.
    let mut scale = [0.0_f64; N];
    for sample in samples {
        for (scale, term) in scale.iter_mut().zip(sample.terms) {
            *scale = scale.max(term / sample.value);
        }
    }
    let largest = samples.iter().map(|sample| sample.value).fold(0.0, f64::max);
    let scaled = |i: usize, term: f64| if scale[i] > 0.0 { term / scale[i] } else { 0.0 };
    let mut rows: Vec<Row<N>> = samples
        .iter()
        .map(|sample| {
            let importance = (sample.value / largest).sqrt();
            let terms = std::array::from_fn(|i| scaled(i, sample.terms[i] / sample.value));
            Row { terms, importance, weight: importance }
        })
        .collect();
    let mut x = least_squares(&rows);
    for _ in 0..ROUNDS {
        // A square divided by the error is the error.
        for row in &mut rows {
            row.weight = row.importance / row.error(&x).abs().max(SMALL_ERROR);
        }
        x = least_squares(&rows);
    }
    std::array::from_fn(|i| scaled(i, x[i]))
}

/// More change little.
const ROUNDS: usize = 10;

/// Errors below this are all alike.
const SMALL_ERROR: f64 = 0.02;

/// Terms whose sum should be 1.
#[derive(Clone, Copy, Debug)]
struct Row<const N: usize> {
    terms: [f64; N],
    importance: f64,
    weight: f64,
}

impl<const N: usize> Row<N> {
    fn error(&self, x: &[f64; N]) -> f64 {
        self.terms.iter().zip(x).map(|(a, b)| a * b).sum::<f64>() - 1.0
    }
}

/// The least weighted sum of squares. With so few coefficients every choice of those that are not 0 can be tried, which
/// finds the optimum without iterating.
fn least_squares<const N: usize>(rows: &[Row<N>]) -> [f64; N] {
    let error = |x: &[f64; N]| rows.iter().map(|row| row.weight * row.error(x).powi(2)).sum::<f64>();
    let mut best = [0.0; N];
    let mut least = error(&best);
    for chosen in 1_u32..1 << N {
        let columns: Vec<usize> = (0..N).filter(|i| chosen >> i & 1 == 1).collect();
        let Some(x) = solve(rows, &columns) else { continue };
        if x.iter().all(|x| *x >= 0.0) && error(&x) < least - 1e-12 {
            (best, least) = (x, error(&x));
        }
    }
    best
}

/// The normal equations of these columns, by elimination; `None` where they do not determine the coefficients.
fn solve<const N: usize>(rows: &[Row<N>], columns: &[usize]) -> Option<[f64; N]> {
    let n = columns.len();
    let mut matrix = [[0.0; N]; N];
    let mut right = [0.0; N];
    for Row { terms, weight, .. } in rows {
        for (i, &a) in columns.iter().enumerate() {
            right[i] += weight * terms[a];
            for (j, &b) in columns.iter().enumerate() {
                matrix[i][j] += weight * terms[a] * terms[b];
            }
        }
    }
    // The matrix is symmetric and not negative, so pivots on its diagonal will do.
    for pivot in 0..n {
        let diagonal = matrix[pivot][pivot];
        if diagonal <= 1e-9 {
            return None;
        }
        let (row, value) = (matrix[pivot], right[pivot]);
        for below in pivot + 1..n {
            let factor = matrix[below][pivot] / diagonal;
            for (entry, above) in matrix[below].iter_mut().zip(row).skip(pivot) {
                *entry -= factor * above;
            }
            right[below] -= factor * value;
        }
    }
    let mut x = [0.0; N];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| matrix[i][j] * x[columns[j]]).sum();
        x[columns[i]] = (right[i] - known) / matrix[i][i];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(coefficients: [f64; 3], noise: f64) -> Vec<Sample<3>> {
        (1..40)
            .map(|i| {
                let i = f64::from(i);
                let terms = [1.0 + (i * 7.0) % 3.0, i * i * 1e4, (i * 37.0) % 11.0 * 1e4 + 1.0];
                let exact: f64 = terms.iter().zip(coefficients).map(|(a, b)| a * b).sum();
                Sample { terms, value: exact * (1.0 + noise * (i * 12.9898).sin()) }
            })
            .collect()
    }

    #[test]
    fn exact_values_give_the_coefficients_back() {
        for expected in [[5e3, 2e-3, 0.5], [5e3, 0.0, 0.5], [0.0, 3.0, 0.0], [1.0, 1.0, 1.0]] {
            let found = least_errors(&samples(expected, 0.0));
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-5 * expected.max(1e-6), "{found} instead of {expected}");
            }
        }
    }

    #[test]
    fn noise_moves_coefficients_little_and_never_below_zero() {
        let expected = [5e3, 2e-3, 0.5];
        let found = least_errors(&samples(expected, 0.05));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 0.1, "{found} instead of {expected}");
        }
        // The best fit without the condition would take the second away from the first.
        let sinking = [1.0, 2.0, 3.0].map(|x| Sample { terms: [1.0, x], value: 10.0 - x });
        let found = least_errors(&sinking);
        assert!(found[0] > 0.0 && found[1] == 0.0, "{found:?}");
    }

    #[test]
    fn a_few_bad_values_do_little_harm() {
        let expected = [5e3, 2e-3, 0.5];
        let mut disturbed = samples(expected, 0.01);
        for sample in disturbed.iter_mut().step_by(7) {
            sample.value *= 3.0;
        }
        let found = least_errors(&disturbed);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 0.1, "{found} instead of {expected}");
        }
    }

    #[test]
    fn too_few_samples_are_no_trouble() {
        assert_eq!(least_errors::<3>(&[]), [0.0; 3]);
        let single = Sample { terms: [1.0, 200.0, 0.0], value: 50.0 };
        let found = least_errors(&[single, single]);
        let predicted: f64 = found.iter().zip(single.terms).map(|(a, b)| a * b).sum();
        assert!((predicted - 50.0).abs() < 1e-6, "{found:?}");
        assert!(found.iter().all(|x| *x >= 0.0) && found[2] == 0.0, "{found:?}");
    }
}
