//! Text as sequences of characters or other tokens, each to be followed by the next.

mod file;
mod tokens;
mod vocabulary;

pub use self::file::{TextFile, TextOptions};
pub use self::tokens::{Pieces, TokenFile};
pub use self::vocabulary::Vocabulary;
pub use super::sequence::Parts;
use super::{Targets, TensorDataset, Values};
use crate::error::DataError;
use crate::tensor::room;

/// How many characters there are: those of ASCII that print, and the line feed.
pub const CHARACTERS: u32 = 96;

/// The number of a character. Those that have none count as `?`.
///
/// ```
/// use tightfit::data::text::{character, token};
///
/// assert_eq!((token('a'), token('\n')), (65, 95));
/// assert_eq!(character(token('Q')), 'Q');
/// assert_eq!(character(token('é')), '?');
/// ```
pub fn token(character: char) -> u32 {
    match character {
        '\n' => CHARACTERS - 1,
        ' '..='~' => character as u32 - ' ' as u32,
        _ => token('?'),
    }
}

/// The character of a number; `?` of a number that is none of a character.
pub fn character(token: u32) -> char {
    if token == CHARACTERS - 1 {
        return '\n';
    }
    char::from_u32(token + ' ' as u32).filter(|c| (' '..='~').contains(c)).unwrap_or('?')
}

fn tokens(text: &str) -> Result<Vec<u32>, DataError> {
    let mut tokens = room(text.len())?;
    tokens.extend(text.chars().map(token));
    Ok(tokens)
}

/// Pieces of `length` characters, one beginning every `stride`, each with the characters that follow its own as targets.
///
/// # Errors
/// [`DataError::Mismatch`] where the text is too short for one piece, or a number is 0, [`DataError::HostMemory`] where there is
/// no memory for the pieces.
pub fn pieces(text: &str, length: usize, stride: usize) -> Result<TensorDataset, DataError> {
    let tokens = tokens(text)?;
    if length == 0 || stride == 0 {
        return Err(DataError::Mismatch("length and stride of pieces of text must be at least 1".to_owned()));
    }
    if tokens.len() <= length {
        return Err(DataError::Mismatch(format!(
            "a text of {} characters has no piece of {length} with one more after it: use shorter pieces",
            tokens.len()
        )));
    }
    let count = (tokens.len() - length).div_ceil(stride).saturating_mul(length);
    let (mut samples, mut targets) = (room(count)?, room(count)?);
    for start in (0..tokens.len() - length).step_by(stride) {
        samples.extend_from_slice(&tokens[start..start + length]);
        targets.extend_from_slice(&tokens[start + 1..start + 1 + length]);
    }
    TensorDataset::new(Values::U32(samples), [length], Targets::label_maps(targets, CHARACTERS, [length]))
}

/// The text in `batch` long parts of equal length, side by side: batch after batch of pieces of `length` characters goes on
/// where the one before ended, as layers that carry their state need it. Samples are in the order of these batches.
///
/// # Errors
/// As [`pieces`].
pub fn streams(text: &str, batch: usize, length: usize) -> Result<TensorDataset, DataError> {
    let tokens = tokens(text)?;
    if length == 0 || batch == 0 {
        return Err(DataError::Mismatch("batch and length of streams of text must be at least 1".to_owned()));
    }
    let per_stream = tokens.len().saturating_sub(1) / batch / length;
    if per_stream == 0 {
        return Err(DataError::Mismatch(format!(
            "a text of {} characters cannot be read in {batch} streams of pieces of {length}: use fewer or shorter ones",
            tokens.len()
        )));
    }
    let count = per_stream * batch * length;
    let (mut samples, mut targets) = (room(count)?, room(count)?);
    for piece in 0..per_stream {
        for stream in 0..batch {
            let start = (stream * per_stream + piece) * length;
            samples.extend_from_slice(&tokens[start..start + length]);
            targets.extend_from_slice(&tokens[start + 1..start + 1 + length]);
        }
    }
    TensorDataset::new(Values::U32(samples), [length], Targets::label_maps(targets, CHARACTERS, [length]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Batch, Dataset as _};

    fn read(data: &TensorDataset, samples: &[usize]) -> [String; 2] {
        let mut batch = Batch::default();
        data.read(samples, &mut batch).expect("in range");
        ["input", "target"].map(|name| batch.ints(name).into_iter().map(character).collect())
    }

    #[test]
    fn every_character_has_its_number() {
        for number in 0..CHARACTERS {
            assert_eq!(token(character(number)), number);
        }
        assert_eq!(character(CHARACTERS), '?');
        assert_eq!(character(u32::MAX - 40), '?');
    }

    #[test]
    fn targets_are_the_next_characters() {
        let data = pieces("abcdefg", 3, 2).expect("long enough");
        assert_eq!(data.len(), 2);
        assert_eq!(read(&data, &[1]), ["cde", "def"]);
        assert!(pieces("abc", 3, 1).is_err() && pieces("abc", 0, 1).is_err() && pieces("abcd", 3, 1).is_ok());
    }

    #[test]
    fn streams_go_on_from_batch_to_batch() {
        let data = streams("abcdefghijklm", 2, 3).expect("long enough");
        assert_eq!(data.len(), 4);
        assert_eq!(read(&data, &[0, 2]), ["abcdef", "bcdefg"], "the first stream");
        assert_eq!(read(&data, &[1, 3]), ["ghijkl", "hijklm"], "the second");
        assert!(streams("abc", 2, 3).is_err() && streams("abc", 0, 3).is_err());
    }
}
