//! Test data: the same for the same key, on every machine.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tightfit::tensor::DType;
use tightfit::testing::{Case, Fill};

use super::eval::{Buf, Scalar};

/// A generator of its own for each key.
pub fn rng(key: &str) -> ChaCha8Rng {
    let seed = key
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    ChaCha8Rng::seed_from_u64(seed)
}

/// N(0, 1).
pub fn normal(rng: &mut ChaCha8Rng) -> f32 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    (radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()) as f32
}

/// `numel` numbers drawn as `fill` says.
pub fn reals(fill: Fill, numel: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    match fill {
        Fill::Distinct(distance) => {
            let mut order: Vec<usize> = (0..numel).collect();
            for i in (1..numel).rev() {
                order.swap(i, rng.random_range(0..=i));
            }
            order.into_iter().map(|i| (i as f32 - numel as f32 / 2.0) * distance * 1.5).collect()
        }
        _ => (0..numel)
            .map(|_| match fill {
                Fill::Uniform(low, high) => low + (high - low) * rng.random::<f32>(),
                Fill::Constant(value) => value,
                Fill::AwayFromZero(distance) => {
                    let x = normal(rng);
                    if x.abs() < distance { x + distance.copysign(x) } else { x }
                }
                Fill::Labels(classes) => rng.random_range(0..classes) as f32,
                Fill::Normal | Fill::Distinct(_) => normal(rng),
            })
            .collect(),
    }
}

/// The inputs of a case. Every real number is exact in f32.
pub fn inputs<T: Scalar>(op: &str, case: &Case) -> Vec<Buf<T>> {
    let draw = |(i, (desc, fill)): (usize, &(tightfit::tensor::TensorDesc, Fill))| {
        let mut rng = rng(&format!("{op}/{}/input{i}", case.name));
        match (desc.dtype, *fill) {
            (DType::U32, Fill::Labels(classes)) => {
                Buf::Int((0..desc.numel()).map(|_| rng.random_range(0..classes)).collect())
            }
            (DType::U8, _) => Buf::Int((0..desc.numel().div_ceil(4)).map(|_| rng.random()).collect()),
            (DType::U32, Fill::Constant(value)) => Buf::Int(vec![value as u32; desc.numel()]),
            (DType::U32, _) => Buf::Int((0..desc.numel()).map(|_| rng.random()).collect()),
            _ => Buf::from_f32(&reals(*fill, desc.numel(), &mut rng)),
        }
    };
    case.inputs.iter().enumerate().map(draw).collect()
}
