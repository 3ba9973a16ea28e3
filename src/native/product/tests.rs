//! Products against plain sums in f64.

use super::*;

/// Numbers between −1 and 1, the same in every run.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

/// Runs a product with so many threads.
fn run(product: &Product<'_>, level: Level, threads: usize, before: &[f32], stride: usize) -> Vec<f32> {
    let Extents { batch, m, n, .. } = product.extents;
    let mut scratch = vec![f32::NAN; product.extents.scratch(threads)];
    let mut c = before.to_vec();
    product.run(&Cores::new(threads, level), &mut scratch, Block::new(&mut c, batch * m, n, stride));
    c
}

/// Compares a product of these extents with plain sums, for each level and number of threads, in all layouts.
fn check(extents: Extents) {
    let Extents { batch, m, n, k } = extents;
    let (a, b) = (numbers(batch * m * k, 1), numbers(batch * k * n, 2));
    let (rows, columns) = (numbers(m, 3), numbers(n, 4));
    let stride = n + 3;
    let before = numbers(batch * m * stride, 5);
    // Puts the results into a context in which each is different.
    let finish = |start: usize, results: &mut [f32], to: &mut [f32]| {
        for (i, (result, to)) in results.iter().zip(to).enumerate() {
            *to = *result + 2.0 * *to + (start + i) as f32 / 1024.0;
        }
    };
    for case in 0..16 {
        let (trans_a, trans_b) = (case % 2 == 1, case / 2 % 2 == 1);
        let start = [Start::Zero, Start::Output, Start::Rows(&rows), Start::Columns(&columns)][case / 4];
        let (relu, is_finished) = (case % 3 == 1, case % 5 < 2);
        let product = Product {
            extents,
            a: Factor::matrix(&a, !trans_a, if trans_a { m } else { k }, m * k),
            b: Factor::matrix(&b, trans_b, if trans_b { k } else { n }, k * n),
            start,
            relu,
            finish: if is_finished { Some(&finish) } else { None },
        };
        for level in Level::available() {
            let c = run(&product, level, 1, &before, stride);
            for (place, &found) in c.iter().enumerate() {
                let (row, column) = (place / stride, place % stride);
                if column >= n {
                    assert_eq!(found, before[place], "beyond the columns nothing is written");
                    continue;
                }
                let (g, i) = (row / m, row % m);
                let term = |p: usize| {
                    let x = a[g * m * k + if trans_a { p * m + i } else { i * k + p }];
                    let y = b[g * k * n + if trans_b { column * k + p } else { p * n + column }];
                    f64::from(x) * f64::from(y)
                };
                let first = [0.0, before[place], rows[i], columns[column]][case / 4];
                let mut expected: f64 = f64::from(first) + (0..k).map(term).sum::<f64>();
                if relu {
                    expected = expected.max(0.0);
                }
                if is_finished {
                    expected += 2.0 * f64::from(before[place]) + place as f64 / 1024.0;
                }
                let error = (f64::from(found) - expected).abs();
                let most = 1e-6 * (1.0 + (k as f64).sqrt()) + 1e-6 * expected.abs();
                assert!(error <= most, "{extents:?}, case {case}, {level}: {found} at {place}, not {expected}");
            }
            for threads in [2, 3] {
                assert!(run(&product, level, threads, &before, stride) == c, "{extents:?}, case {case}, {level}");
            }
        }
    }
}

#[test]
fn products_are_right_in_every_layout() {
    for (m, n, k) in
        [(1, 1, 0), (1, 1, 1), (4, 6, 5), (7, 5, 1), (1, 100, 37), (2, 33, 100), (17, 9, 33), (70, 130, 20)]
    {
        check(Extents::new(m, n, k));
    }
    check(Extents { batch: 3, ..Extents::new(13, 20, 9) });
}

#[test]
fn long_sums_are_right() {
    check(Extents::new(33, 70, 1000));
    check(Extents { batch: 2, ..Extents::new(5, 7, 3001) });
}

#[test]
fn what_is_shared_among_threads_is_right() {
    check(Extents::new(150, 140, 60));
    check(Extents { batch: 5, ..Extents::new(40, 33, 50) });
}

#[test]
fn terms_may_lie_anywhere() {
    let (m, n) = (6, 37);
    let places = [0, 5, 3, 3, 9];
    let tables = [m, n].map(|width| places.map(|place| (place * width) as u32));
    let (a, b) = (numbers(10 * m, 1), numbers(10 * n, 2));
    let product = Product {
        extents: Extents::new(m, n, places.len()),
        a: Factor { data: &a, terms: Offsets::Table(&tables[0]), step: 1, batch: 0 },
        b: Factor { data: &b, terms: Offsets::Table(&tables[1]), step: 1, batch: 0 },
        start: Start::Zero,
        relu: false,
        finish: None,
    };
    let c = run(&product, Level::best(), 2, &vec![0.0; m * n], n);
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let expected: f32 = places.iter().map(|p| a[p * m + i] * b[p * n + j]).sum();
        assert!((c[i * n + j] - expected).abs() < 1e-5);
    }
}
