//! Numbers that the PyTorch side computes exactly alike: see `tests/golden/recipe.py` and `tests/golden/losses.py`.

/// The top 24 bits of each of the numbers that belong to a name.
fn top_bits(name: &str) -> impl Iterator<Item = u32> {
    let mut state = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as u32
    })
}

/// Numbers in 0..1.
fn units(name: &str) -> impl Iterator<Item = f32> {
    top_bits(name).map(|bits| bits as f32 / (1u32 << 24) as f32)
}

/// Numbers in -1..1: inputs, targets of a regression, probes.
pub fn symmetric(name: &str) -> impl Iterator<Item = f32> {
    units(name).map(|unit| 2.0 * unit - 1.0)
}

/// Numbers below `n`: tokens, labels.
pub fn below(name: &str, n: u32) -> impl Iterator<Item = u32> {
    top_bits(name).map(move |bits| bits % n)
}

/// The values of a parameter of a reference model.
pub fn parameter(name: &str, shape: &[usize]) -> Vec<f32> {
    let numel = shape.iter().product::<usize>();
    let (centre, bound) = match shape {
        [first, _, ..] => (0.0, (3.0 * *first as f64 / numel as f64).sqrt() as f32),
        _ if name.ends_with("weight") => (1.0, 0.2),
        _ => (0.0, 0.1),
    };
    symmetric(name).take(numel).map(|x| x * bound + centre).collect()
}

/// The values of the parameter `name` of a layer whose outputs have `fan` inputs each (LSTM: the hidden size).
pub fn weights(name: &str, numel: usize, fan: usize) -> Vec<f32> {
    let bound = (1.0 / (fan as f64).sqrt()) as f32;
    units(name).take(numel).map(|unit| unit * (2.0 * bound) - bound).collect()
}
