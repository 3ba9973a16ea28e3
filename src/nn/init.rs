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
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
}

/// From which range a layer draws its weights and its bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Both uniform over ±1/√fan_in: PyTorch's default. Each layer followed by ReLU makes its input about 2.4 times
    /// smaller, too much for a deep model without skips.
    #[default]
    FanIn,
    /// Weights uniform over ±√(6/fan_in), bias zeros, after <https://arxiv.org/abs/1502.01852>: a layer followed by ReLU
    /// keeps the size of its input.
    He,
}

impl Scheme {
    /// How weights and bias start where each output is a sum of `fan_in` terms.
    pub fn init(self, fan_in: usize) -> (Init, Init) {
        match self {
            Scheme::FanIn => (Init::fan_in(fan_in), Init::fan_in(fan_in)),
            Scheme::He => (Init::Uniform { bound: (6.0 / fan_in.max(1) as f32).sqrt() }, Init::Zeros),
        }
    }
}

impl Init {
    /// Uniform over ±1/√`fan_in`: PyTorch's default for linear and convolution layers, weights and biases.
    pub fn fan_in(fan_in: usize) -> Self {
        Init::Uniform { bound: 1.0 / (fan_in.max(1) as f32).sqrt() }
    }

    /// Writes the starting values of the parameter `name`.
    ///
    /// The values depend on `seed` and `name` alone, so they are the same whatever the order of the layers, the batch,
    /// the budget or the device. The generator is ChaCha8 with the 32-byte key SHA-256(`seed` as 8 little-endian bytes,
    /// then `name`); each value is made from the upper 24 bits of one 32-bit word.
    pub fn fill(&self, seed: u64, name: &str, out: &mut [f32]) {
        match *self {
            Init::Zeros => out.fill(0.0),
            Init::Ones => out.fill(1.0),
            Init::Uniform { bound } => {
                let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name).finalize();
                let mut rng = ChaCha8Rng::from_seed(key.into());
                for value in out {
                    let unit = (rng.next_u32() >> 8) as f32 / (1u32 << 24) as f32;
                    *value = (2.0 * unit - 1.0) * bound;
                }
            }
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
}
