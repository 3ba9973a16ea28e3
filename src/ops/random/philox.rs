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
    lanes(counter.map(|c| [c]), key).map(|[x]| x)
}

/// The same for several counters at once: the words of all counters, to the numbers of all.
#[inline(always)]
pub(in crate::ops) fn lanes<const N: usize>(counter: [[u32; N]; 4], key: [u32; 2]) -> [[u32; N]; 4] {
    let ([mut a, mut b, mut c, mut d], mut k) = (counter, key);
    for _ in 0..ROUNDS {
        for lane in 0..N {
            let first = u64::from(FACTORS[0]) * u64::from(a[lane]);
            let second = u64::from(FACTORS[1]) * u64::from(c[lane]);
            a[lane] = (second >> 32) as u32 ^ b[lane] ^ k[0];
            c[lane] = (first >> 32) as u32 ^ d[lane] ^ k[1];
            b[lane] = second as u32;
            d[lane] = first as u32;
        }
        k = [k[0].wrapping_add(KEY_STEPS[0]), k[1].wrapping_add(KEY_STEPS[1])];
    }
    [a, b, c, d]
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
