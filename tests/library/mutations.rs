//! Files that something went wrong with.

use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use tightfit::data::Dataset;
use tightfit::error::DataError;

/// So many versions of a file: cut, with bytes that were changed, doubled, taken out or put in.
pub(crate) fn mutations(bytes: &[u8], count: u64) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..count).map(move |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |end: usize| (random.next_u64() % end.max(1) as u64) as usize;
        let mut mutated = bytes.to_vec();
        for _ in 0..=below(4) {
            let at = below(mutated.len());
            let end = at + below((mutated.len() - at).min(64));
            match below(7) {
                0 => mutated.truncate(at),
                1 | 2 if !mutated.is_empty() => mutated[at] ^= 1 << below(8),
                3 if !mutated.is_empty() => mutated[at] = [0, 0xff, b'"', b'\n', b'(', b'9', 0x80][below(7)],
                4 => {
                    mutated.drain(at..end);
                }
                5 => {
                    let part = mutated[at..end].to_vec();
                    mutated.splice(at..at, part);
                }
                _ => {
                    let new: Vec<u8> = (0..below(16)).map(|_| below(256) as u8).collect();
                    mutated.splice(at..at, new);
                }
            }
        }
        mutated
    })
}

/// The message of an error, checked to be one sentence on one line.
pub(crate) fn message<T>(result: Result<T, DataError>) -> String {
    message_of(&result.err().expect("this must fail").to_string())
}

/// A message, checked to be one sentence on one line.
pub(crate) fn message_of(text: &str) -> String {
    let is_clean = !text.chars().any(char::is_control)
        && text.len() < 1500
        && !text.contains("DataError")
        && !text.contains("ImportError");
    assert!(is_clean, "{text:?}");
    text.to_owned()
}

/// Opens all versions of a file and reads what can be read. Returns how many were refused, at first or later.
pub(crate) fn refused<D: Dataset>(
    path: &Path,
    bytes: &[u8],
    count: u64,
    open: impl Fn(&Path) -> Result<D, DataError>,
) -> usize {
    let mut refused = 0;
    for mutated in mutations(bytes, count) {
        std::fs::write(path, &mutated).expect("writes");
        let data = match open(path) {
            Ok(data) => data,
            Err(error) => {
                message::<()>(Err(error));
                refused += 1;
                continue;
            }
        };
        // An index of a few bytes for each of the file.
        assert!(data.host_bytes() <= (1 << 20) + mutated.len() as u64 * 64, "{} B", data.host_bytes());
        let features = data.features().expect("a dataset that opens has features");
        let mut is_refused = false;
        for index in (0..data.len()).take(50) {
            match data.get(index) {
                Ok(sample) => {
                    for (name, desc) in features.entries() {
                        let array = sample.get(name).expect("as the features say");
                        assert_eq!((array.dtype(), array.shape()), (desc.dtype, &desc.shape), "{name}");
                    }
                }
                Err(error) => {
                    message::<()>(Err(error));
                    is_refused = true;
                }
            }
        }
        assert!(data.get(data.len()).is_err());
        refused += usize::from(is_refused);
    }
    refused
}
