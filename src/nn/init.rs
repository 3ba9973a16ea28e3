//! Starting values of parameters.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Init {
    /// Evenly spread over `[-bound, bound)`.
    Uniform {
        /// Half the width of the range.
        bound: f32,
    },
    /// Normally distributed around 0.
    Normal {
        /// Standard deviation.
        std: f32,
    },
    /// Normally distributed around 0, but one row of a matrix all 0: the padding of a table.
    NormalRows {
        /// Standard deviation.
        std: f32,
        /// Elements of a row.
        columns: usize,
        /// The row of zeros.
        zero: usize,
    },
    /// All the same.
    Constant {
        /// The value.
        value: f32,
    },
    /// A matrix of this many columns whose rows are orthonormal, or where it has more rows than columns, whose columns
    /// are; times a gain.
    Orthogonal {
        /// Columns: elements of a row.
        columns: usize,
        /// Factor.
        gain: f32,
    },
    /// Blocks that start differently, in equal parts of the tensor: all as `others`, but block `block` of `blocks` all
    /// `value`. For the bias of an LSTM's forget gate.
    Block {
        /// Which block is different.
        block: usize,
        /// Number of blocks.
        blocks: usize,
        /// What that block is filled with.
        value: f32,
        /// Half the width of the range of the other blocks, as in [`Init::Uniform`]; 0 for zeros.
        bound: f32,
    },
}

/// How a layer's weights and bias start. Layers of convolutions and products have this setting. `fan_in` is the number of
/// terms in the sum of an output, `fan_out` the number of sums that an input is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Both uniform over ±1/√fan_in: PyTorch's default. Each layer followed by ReLU makes its input about 2.4 times
    /// smaller, too much for a deep model without skips.
    #[default]
    FanIn,
    /// Weights uniform over ±√(6/fan_in), bias zeros, after <https://arxiv.org/abs/1502.01852>: a layer followed by ReLU
    /// keeps the size of its input. Keras' `he_uniform`.
    #[serde(alias = "he", alias = "he_uniform")]
    KaimingUniform,
    /// Weights normal with deviation √(2/fan_in), bias zeros. Keras' `he_normal`, but not truncated.
    #[serde(alias = "he_normal")]
    KaimingNormal,
    /// Weights normal with deviation √(2/fan_out), bias zeros: what torchvision's ResNets start from.
    KaimingNormalFanOut,
    /// Weights uniform over ±√(6/(fan_in + fan_out)), bias zeros, after
    /// <https://proceedings.mlr.press/v9/glorot10a.html>: Keras' default.
    #[serde(alias = "glorot_uniform")]
    XavierUniform,
    /// Weights normal with deviation √(2/(fan_in + fan_out)), bias zeros.
    #[serde(alias = "glorot_normal")]
    XavierNormal,
    /// Weights orthogonal as a matrix of outputs by inputs, bias zeros, after <https://arxiv.org/abs/1312.6120>.
    Orthogonal,
    /// Weights normal with deviation 0.01, bias zeros.
    Small,
    /// Weights normal with deviation 0.02, bias zeros: what GPT-2 starts from.
    Gpt,
}

impl Scheme {
    /// How weights and bias start.
    pub fn init(self, fan_in: usize, fan_out: usize) -> (Init, Init) {
        let (fan_in_f, fan_out_f) = (fan_in.max(1) as f32, fan_out.max(1) as f32);
        let weight = match self {
            Scheme::FanIn => return (Init::fan_in(fan_in), Init::fan_in(fan_in)),
            Scheme::KaimingUniform => Init::Uniform { bound: (6.0 / fan_in_f).sqrt() },
            Scheme::KaimingNormal => Init::Normal { std: (2.0 / fan_in_f).sqrt() },
            Scheme::KaimingNormalFanOut => Init::Normal { std: (2.0 / fan_out_f).sqrt() },
            Scheme::XavierUniform => Init::Uniform { bound: (6.0 / (fan_in_f + fan_out_f)).sqrt() },
            Scheme::XavierNormal => Init::Normal { std: (2.0 / (fan_in_f + fan_out_f)).sqrt() },
            Scheme::Orthogonal => Init::Orthogonal { columns: fan_in.max(1), gain: 1.0 },
            Scheme::Small => Init::Normal { std: 0.01 },
            Scheme::Gpt => Init::Normal { std: 0.02 },
        };
        (weight, Init::ZEROS)
    }
}

impl Init {
    /// All zeros.
    pub const ZEROS: Init = Init::Constant { value: 0.0 };
    /// All ones.
    pub const ONES: Init = Init::Constant { value: 1.0 };

    /// Uniform over ±1/√`fan_in`: PyTorch's default for linear and convolution layers, weights and biases.
    pub fn fan_in(fan_in: usize) -> Self {
        Init::Uniform { bound: 1.0 / (fan_in.max(1) as f32).sqrt() }
    }

    /// Writes the starting values of the parameter `name`.
    ///
    /// The values depend on `seed` and `name` alone, so they are the same whatever the order of the layers, the batch,
    /// the budget or the device. The generator is ChaCha8 with the 32-byte key SHA-256(`seed` as 8 little-endian bytes,
    /// then `name`); each uniform value is made from the upper 24 bits of one 32-bit word, each two normal ones from two
    /// words by the method of Box and Muller.
    pub fn fill(&self, seed: u64, name: &str, out: &mut [f32]) {
        let random = || {
            let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name).finalize();
            ChaCha8Rng::from_seed(key.into())
        };
        match *self {
            Init::Constant { value } => out.fill(value),
            Init::Uniform { bound } => uniform(&mut random(), bound, out),
            Init::Normal { std } => normal(&mut random(), std, out),
            Init::NormalRows { std, columns, zero } => {
                normal(&mut random(), std, out);
                out.chunks_mut(columns.max(1)).skip(zero).take(1).for_each(|row| row.fill(0.0));
            }
            Init::Orthogonal { columns, gain } => orthogonal(&mut random(), columns, gain, out),
            Init::Block { block, blocks, value, bound } => {
                uniform(&mut random(), bound, out);
                let length = out.len() / blocks.max(1);
                out.chunks_mut(length.max(1)).skip(block).take(1).for_each(|block| block.fill(value));
            }
        }
    }
}

/// The upper 24 bits of a word, in `[0, 1)`.
fn unit(random: &mut ChaCha8Rng) -> f32 {
    (random.next_u32() >> 8) as f32 / (1u32 << 24) as f32
}

fn uniform(random: &mut ChaCha8Rng, bound: f32, out: &mut [f32]) {
    for value in out {
        *value = (2.0 * unit(random) - 1.0) * bound;
    }
}

fn normal(random: &mut ChaCha8Rng, std: f32, out: &mut [f32]) {
    for pair in out.chunks_mut(2) {
        // 1 minus the unit: never the logarithm of 0. libm, so that the values are the same on every machine.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - f64::from(unit(random))));
        let angle = std::f64::consts::TAU * f64::from(unit(random));
        let both = [radius * libm::cos(angle), radius * libm::sin(angle)];
        for (value, x) in pair.iter_mut().zip(both) {
            *value = std * x as f32;
        }
    }
}

/// Rows of a normal matrix, or its columns where there are more rows, made orthonormal one after the other.
fn orthogonal(random: &mut ChaCha8Rng, columns: usize, gain: f32, out: &mut [f32]) {
    normal(random, 1.0, out);
    let columns = columns.clamp(1, out.len().max(1));
    let rows = out.len() / columns;
    let tall = rows > columns;
    // The vectors that become orthonormal, in f64.
    let (count, length) = if tall { (columns, rows) } else { (rows, columns) };
    let at = |vector: usize, i: usize| if tall { i * columns + vector } else { vector * columns + i };
    let mut vectors: Vec<Vec<f64>> =
        (0..count).map(|vector| (0..length).map(|i| f64::from(out[at(vector, i)])).collect()).collect();
    for vector in 0..count {
        let (before, rest) = vectors.split_at_mut(vector);
        let current = &mut rest[0];
        // Twice, because once leaves an error where a vector is nearly in the span of those before it.
        for other in before.iter().chain(before.iter()) {
            let along: f64 = current.iter().zip(other).map(|(a, b)| a * b).sum();
            current.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
        }
        let norm = libm::sqrt(current.iter().map(|a| a * a).sum());
        current.iter_mut().for_each(|a| *a /= norm);
        for (i, &a) in current.iter().enumerate() {
            out[at(vector, i)] = gain * a as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_stays_inside_its_bound_and_is_centred() {
        let mut values = vec![0.0; 10_000];
        Init::Uniform { bound: 0.25 }.fill(1, "linear1.weight", &mut values);
        assert!(values.iter().all(|v| (-0.25..0.25).contains(v)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.005, "{mean}");
        assert!((variance - 0.25 * 0.25 / 3.0).abs() < 0.001, "{variance}");
    }

    #[test]
    fn values_depend_on_seed_and_name_only() {
        let init = Init::fan_in(16);
        let fill = |seed, name| {
            let mut values = [0.0; 8];
            init.fill(seed, name, &mut values);
            values
        };
        assert_eq!(fill(1, "a"), fill(1, "a"));
        assert_ne!(fill(1, "a"), fill(2, "a"));
        assert_ne!(fill(1, "a"), fill(1, "b"));
        let mut longer = [0.0; 20];
        init.fill(1, "a", &mut longer);
        assert_eq!(longer[..8], fill(1, "a"));
    }

    #[test]
    fn normal_has_its_moments() {
        let mut values = vec![0.0; 20_001];
        Init::Normal { std: 0.5 }.fill(3, "w", &mut values);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        let beyond = values.iter().filter(|v| v.abs() > 1.0).count() as f32 / values.len() as f32;
        assert!(mean.abs() < 0.01 && (variance - 0.25).abs() < 0.01, "{mean} {variance}");
        // Two deviations: 4.55%.
        assert!((beyond - 0.0455).abs() < 0.005, "{beyond}");
    }

    #[test]
    fn one_row_can_be_zeros() {
        let (mut plain, mut padded) = ([0.0; 12], [0.0; 12]);
        Init::Normal { std: 1.0 }.fill(3, "w", &mut plain);
        Init::NormalRows { std: 1.0, columns: 4, zero: 1 }.fill(3, "w", &mut padded);
        plain[4..8].fill(0.0);
        assert_eq!(plain, padded);
    }

    #[test]
    fn orthogonal_matrices_are() {
        for (rows, columns) in [(5, 12), (12, 5), (8, 8), (1, 3), (3, 1)] {
            let mut w = vec![0.0; rows * columns];
            Init::Orthogonal { columns, gain: 2.0 }.fill(7, "w", &mut w);
            let (count, length) = if rows > columns { (columns, rows) } else { (rows, columns) };
            let at = |v: usize, i: usize| if rows > columns { w[i * columns + v] } else { w[v * columns + i] };
            for a in 0..count {
                for b in 0..count {
                    let product: f32 = (0..length).map(|i| at(a, i) * at(b, i)).sum();
                    let expected = if a == b { 4.0 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-5, "{rows}x{columns}: {a}, {b}: {product}");
                }
            }
        }
    }

    #[test]
    fn one_block_can_start_differently() {
        let mut bias = [9.0; 8];
        Init::Block { block: 1, blocks: 4, value: 1.0, bound: 0.0 }.fill(0, "b", &mut bias);
        assert_eq!(bias, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn schemes_scale_with_their_fans() {
        assert_eq!(Scheme::default().init(4, 9), (Init::fan_in(4), Init::fan_in(4)));
        assert_eq!(Scheme::KaimingUniform.init(6, 9).0, Init::Uniform { bound: 1.0 });
        assert_eq!(Scheme::KaimingNormal.init(8, 9).0, Init::Normal { std: 0.5 });
        assert_eq!(Scheme::KaimingNormalFanOut.init(9, 8).0, Init::Normal { std: 0.5 });
        assert_eq!(Scheme::XavierUniform.init(3, 3).0, Init::Uniform { bound: 1.0 });
        assert_eq!(Scheme::XavierNormal.init(4, 4), (Init::Normal { std: 0.5 }, Init::ZEROS));
        assert_eq!(serde_json::from_str::<Scheme>("\"glorot_uniform\"").expect("known"), Scheme::XavierUniform);
        assert_eq!(serde_json::from_str::<Scheme>("\"he\"").expect("known"), Scheme::KaimingUniform);
    }
}
