//! Initial weights that the PyTorch side computes exactly alike: see `tests/golden/losses.py`.

/// The values of the parameter `name` of a layer whose outputs have `fan` inputs each (LSTM: the hidden size).
pub fn weights(name: &str, numel: usize, fan: usize) -> Vec<f32> {
    let mut state = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    let bound = (1.0 / (fan as f64).sqrt()) as f32;
    (0..numel)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            let unit = (z >> 40) as f32 / (1u32 << 24) as f32;
            unit * (2.0 * bound) - bound
        })
        .collect()
}
