//! Texts, character by character.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::Vocabulary;
use super::tokens::{Held, Pieces, Sequence, Tokens, dataset_of_sequence};
use crate::data::sequence::Parts;
use crate::data::{Dataset, Features, Sample, corrupt, reserve};
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::format_bytes;

/// Bytes that are looked at in one go.
const PIECE_BYTES: usize = 1 << 16;

/// How a text is read.
#[derive(Clone, Debug, PartialEq)]
pub struct TextOptions {
    /// How it is cut into samples.
    pub pieces: Pieces,
    /// The most characters of a vocabulary that is found in the file, at least 2. Where there are more, the rarest share one token.
    pub most_characters: usize,
    /// Bytes of memory that tokens may take, where they cannot be read from their places in the file.
    pub host_budget_bytes: u64,
}

impl TextOptions {
    /// Samples of this many characters.
    pub fn new(length: usize) -> Self {
        TextOptions { pieces: Pieces::new(length), most_characters: 4096, host_budget_bytes: 1 << 30 }
    }
}

/// A text in UTF-8, character by character: sample `i` is a piece of it as tokens, shape `[length]`, its targets are the characters that
/// follow each of them.
///
/// A text of ASCII alone stays in its file. Of others, characters are of several bytes: their tokens are held in memory, one byte for
/// each in a vocabulary of up to 256, two in one of up to 65,536.
///
/// ```
/// use tightfit::data::Dataset as _;
/// use tightfit::data::text::{TextFile, TextOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("play.txt");
/// std::fs::write(&path, "to be or not to be")?;
/// let text = TextFile::open(&path, &TextOptions::new(5))?;
/// assert_eq!(text.vocabulary().len(), 7);
/// let batch = text.get(0)?;
/// let tightfit::data::Values::U32(targets) = batch.get("target").unwrap().values() else { unreachable!() };
/// assert_eq!(text.vocabulary().decode(targets), "o be ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextFile {
    sequence: Sequence,
    vocabulary: Vocabulary,
}

impl TextFile {
    /// Opens a text, and finds its vocabulary.
    ///
    /// # Errors
    /// [`DataError::Missing`] and [`DataError::Io`] where it cannot be read; [`DataError::Corrupt`] with the place where it is no UTF-8;
    /// [`DataError::Mismatch`] where it is too short for one sample, or would take more memory than it may.
    pub fn open(path: impl AsRef<Path>, options: &TextOptions) -> Result<Self, DataError> {
        let path = path.as_ref();
        if options.most_characters < 2 {
            return Err(DataError::Mismatch("a vocabulary needs at least 2 characters".to_owned()));
        }
        let file = open(path)?;
        let mut counts: HashMap<char, u64> = HashMap::new();
        characters(&file, &mut |_, character| {
            *counts.entry(character).or_default() += 1;
            Ok(())
        })?;
        let total = counts.values().sum();
        let mut found: Vec<_> = counts.into_iter().collect();
        // The rarest last; those that are as rare in their own order.
        found.sort_unstable_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then(a.cmp(b)));
        let is_ascii = found.iter().all(|(character, _)| character.is_ascii());
        let is_cut = found.len() > options.most_characters;
        found.truncate(if is_cut { options.most_characters - 1 } else { found.len() });
        let vocabulary = Vocabulary::new(found.into_iter().map(|(character, _)| character), is_cut)?;
        TextFile::new(file, vocabulary, (total, is_ascii), options)
    }

    /// Opens another text, with the vocabulary of a model.
    ///
    /// # Errors
    /// As [`TextFile::open`], and where a character is not in the vocabulary, which has no token for such.
    pub fn open_with(
        path: impl AsRef<Path>,
        vocabulary: &Vocabulary,
        options: &TextOptions,
    ) -> Result<Self, DataError> {
        let file = open(path.as_ref())?;
        let (mut total, mut is_ascii) = (0, true);
        characters(&file, &mut |at, character| {
            if vocabulary.token(character).is_none() {
                return Err(corrupt(file.path(), vocabulary.unknown_at(character, at)));
            }
            total += 1;
            is_ascii &= character.is_ascii();
            Ok(())
        })?;
        TextFile::new(file, vocabulary.clone(), (total, is_ascii), options)
    }

    fn new(
        file: Positioned,
        vocabulary: Vocabulary,
        (total, is_ascii): (u64, bool),
        options: &TextOptions,
    ) -> Result<Self, DataError> {
        let path = file.path().to_owned();
        let len = usize::try_from(total).unwrap_or(usize::MAX);
        let token = |character: char| vocabulary.token(character).unwrap_or_default();
        let tokens = if is_ascii {
            let table = std::array::from_fn(|byte| token(char::from(byte as u8)));
            Tokens::Ascii(file, Box::new(table))
        } else {
            let size = if vocabulary.len() <= 1 << 8 {
                1
            } else if vocabulary.len() <= 1 << 16 {
                2
            } else {
                4
            };
            let bytes = total.saturating_mul(size);
            if bytes > options.host_budget_bytes {
                return Err(DataError::Mismatch(format!(
                    "{}: the tokens of its {total} characters take {}, more than the {} that they may: allow more, or write \
                     them as a file of tokens",
                    path.display(),
                    format_bytes(bytes),
                    format_bytes(options.host_budget_bytes)
                )));
            }
            // What was counted is what there is room for, whatever happens to the file meanwhile.
            let changed = || corrupt(&path, "changed while it was read: open it again");
            macro_rules! held {
                ($kind:ident) => {{
                    let mut held = reserve(&path, len)?;
                    characters(&file, &mut |_, character| {
                        if held.len() == len {
                            return Err(changed());
                        }
                        held.push(token(character) as _);
                        Ok(())
                    })?;
                    if held.len() < len {
                        return Err(changed());
                    }
                    Held::$kind(held)
                }};
            }
            Tokens::Held(match size {
                1 => held!(U8),
                2 => held!(U16),
                _ => held!(U32),
            })
        };
        let sequence = Sequence::new(&path, tokens, len, vocabulary.len(), options.pieces)?;
        Ok(TextFile { sequence, vocabulary })
    }

    /// The characters, and their tokens: to be kept with a model.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Splits it by place: the last characters are the test, those before them the validation, in shares of the whole from 0 up.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where the shares leave nothing to train on, or a part is too short for one sample.
    pub fn split(&self, val: f64, test: f64) -> Result<Parts<TextFile>, DataError> {
        let text = |sequence| Ok(TextFile { sequence, vocabulary: self.vocabulary.clone() });
        self.sequence.split(val, test)?.map(text)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.sequence.path()
    }

    /// Characters of the file that it has, from 0.
    pub fn characters(&self) -> Range<usize> {
        self.sequence.range()
    }
}

dataset_of_sequence!(TextFile);

fn open(path: &Path) -> Result<Positioned, DataError> {
    Positioned::open(path, "give a text in UTF-8")
}

/// Gives all characters of a file, each with its byte.
fn characters(file: &Positioned, visit: &mut dyn FnMut(u64, char) -> Result<(), DataError>) -> Result<(), DataError> {
    let mut buffer = reserve(file.path(), PIECE_BYTES)?;
    let mut at = 0;
    while at < file.len() {
        buffer.resize((file.len() - at).min(PIECE_BYTES as u64) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        let (text, whole) = match str::from_utf8(&buffer) {
            Ok(text) => (text, buffer.len()),
            Err(error) => {
                let whole = error.valid_up_to();
                // A character may be cut by the end of the buffer, but not by that of the file.
                let is_cut = error.error_len().is_none() && at + (buffer.len() as u64) < file.len();
                if !is_cut {
                    let reason = format!("is not text in UTF-8 at byte {}: save it as UTF-8", at + whole as u64);
                    return Err(corrupt(file.path(), reason));
                }
                (str::from_utf8(&buffer[..whole]).unwrap_or_default(), whole)
            }
        };
        for (place, character) in text.char_indices() {
            visit(at + place as u64, character)?;
        }
        at += whole as u64;
    }
    Ok(())
}
