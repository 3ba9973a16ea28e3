//! Philox 4×32-10, a random number generator without state: number `n` of a stream is a function of `n` and a key. The Rust
//! side of `shaders/shared/philox.wgsl`.
//!
//! Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

/// The odd factors of the two products of a round.
const FACTORS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What is added to the key between rounds: the golden ratio and √3 − 1, in 32 bits.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Four numbers, each uniform over all of u32, for a counter and a key.
pub(in crate::ops) fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let [(high0, low0), (high1, low1)] = [(FACTORS[0], c[0]), (FACTORS[1], c[2])].map(|(factor, x)| {
            let product = u64::from(factor) * u64::from(x);
            ((product >> 32) as u32, product as u32)
        });
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0];
        k = [k[0].wrapping_add(KEY_STEPS[0]), k[1].wrapping_add(KEY_STEPS[1])];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that are published with the generator (Random123's `kat_vectors`).
    #[test]
    fn gives_the_published_numbers() {
        let ones = u32::MAX;
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
            ([ones; 4], [ones; 2], [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }
}
