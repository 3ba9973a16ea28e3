//! Files of tokens, and how sequences of them are cut into samples.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::data::npy::Npy;
use crate::data::sequence::{Parts, Windows, parts};
use crate::data::{Dataset, Features, Sample, Values, corrupt, reserve};
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::DType;

/// How a sequence of tokens is cut into samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Tokens of a sample. Its targets are the tokens that follow each of them.
    pub length: usize,
    /// Tokens from the beginning of one sample to that of the next.
    pub stride: usize,
    /// For models that carry their state from batch to batch: the number of samples of a batch. The sequence is read in as many streams
    /// side by side, each goes on in the next batch where it was, and samples do not overlap, whatever the stride is.
    pub stateful: Option<usize>,
}

impl Pieces {
    /// Samples of this length, each beginning where the one before ended.
    pub fn new(length: usize) -> Self {
        Pieces { length, stride: length, stateful: None }
    }
}

/// Where tokens are.
#[derive(Debug)]
pub(super) enum Tokens {
    /// In the file, each of this many bytes, the least significant first.
    Raw(Positioned, usize),
    /// In an array of NumPy.
    Array(Box<Npy>),
    /// In a text of one byte a character, with the token of each byte.
    Ascii(Positioned, Box<[u32; 128]>),
    /// In memory, since a character may be of several bytes.
    Held(Held),
}

#[derive(Debug)]
pub(super) enum Held {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
}

impl Tokens {
    fn read(&self, path: &Path, range: Range<usize>) -> Result<Vec<u32>, DataError> {
        let mut tokens = reserve(path, range.len())?;
        match self {
            Tokens::Raw(file, size) => {
                let bytes = file.bytes_at((range.start * size) as u64, range.len() * size)?;
                let token = |bytes: &[u8]| bytes.iter().rev().fold(0, |token, byte| token << 8 | u32::from(*byte));
                tokens.extend(bytes.chunks_exact(*size).map(token));
            }
            Tokens::Array(array) => match array.read(range, DType::U32)? {
                Values::U32(values) => tokens = values,
                Values::F32(_) | Values::U8(_) => return Err(corrupt(path, "holds no integers: tokens are integers")),
            },
            Tokens::Ascii(file, table) => {
                let bytes = file.bytes_at(range.start as u64, range.len())?;
                for byte in bytes {
                    let token = table.get(usize::from(byte));
                    tokens.push(*token.ok_or_else(|| corrupt(path, "changed while it was read: open it again"))?);
                }
            }
            Tokens::Held(Held::U8(held)) => tokens.extend(held[range].iter().map(|token| u32::from(*token))),
            Tokens::Held(Held::U16(held)) => tokens.extend(held[range].iter().map(|token| u32::from(*token))),
            Tokens::Held(Held::U32(held)) => tokens.extend_from_slice(&held[range]),
        }
        Ok(tokens)
    }

    fn host_bytes(&self, tokens: usize) -> u64 {
        match self {
            Tokens::Raw(..) | Tokens::Array(_) | Tokens::Ascii(..) => 0,
            Tokens::Held(Held::U8(_)) => tokens as u64,
            Tokens::Held(Held::U16(_)) => 2 * tokens as u64,
            Tokens::Held(Held::U32(_)) => 4 * tokens as u64,
        }
    }
}

/// A part of a sequence, as samples.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    path: Arc<Path>,
    tokens: Arc<Tokens>,
    range: Range<usize>,
    vocabulary: u32,
    windows: Windows,
    count: usize,
}

impl Sequence {
    pub(super) fn new(
        path: &Path,
        tokens: Tokens,
        len: usize,
        vocabulary: u32,
        pieces: Pieces,
    ) -> Result<Self, DataError> {
        let Pieces { length, stride, stateful } = pieces;
        let windows = Windows { length, ahead: 1, stride, streams: stateful };
        let sequence =
            Sequence { path: path.into(), tokens: Arc::new(tokens), range: 0..0, vocabulary, windows, count: 0 };
        sequence.part(0..len)
    }

    fn part(&self, range: Range<usize>) -> Result<Self, DataError> {
        let count = self.windows.count("tokens", range.len());
        let count = count.map_err(|error| error.of_sample(&self.path.display().to_string()))?;
        Ok(Sequence { range, count, ..self.clone() })
    }

    pub(super) fn split(&self, val: f64, test: f64) -> Result<Parts<Sequence>, DataError> {
        parts(&self.range, val, test)?.map(|range| self.part(range))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    fn start(&self, index: usize) -> Result<usize, DataError> {
        if index >= self.count {
            return Err(DataError::Mismatch(format!("piece {index} of {} does not exist", self.count)));
        }
        Ok(self.range.start + self.windows.start(index, self.range.len()))
    }
}

impl Dataset for Sequence {
    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        let start = self.start(index)?;
        let length = self.windows.length;
        let mut tokens = self.tokens.read(&self.path, start..start + length + 1)?;
        if let Some(at) = tokens.iter().position(|token| *token >= self.vocabulary) {
            return Err(corrupt(
                &self.path,
                format!(
                    "token {} at {} is not below {}, the size of the vocabulary",
                    tokens[at],
                    start + at,
                    self.vocabulary
                ),
            ));
        }
        let mut targets = reserve(&self.path, length)?;
        targets.extend_from_slice(&tokens[1..]);
        tokens.truncate(length);
        Ok(Sample::new(tokens).with_target(targets))
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(Features::new(DType::U32, [self.windows.length]).with_labels(self.vocabulary, [self.windows.length]))
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        self.start(index).map(|_| None)
    }

    fn origin(&self, index: usize) -> String {
        let path = self.path.display();
        match self.start(index) {
            Ok(start) => format!("{path}: tokens {start} to {}", start + self.windows.length - 1),
            Err(_) => format!("{path}: piece {index}"),
        }
    }

    fn host_bytes(&self) -> u64 {
        self.tokens.host_bytes(self.range.len())
    }

    /// The bytes of the file.
    fn scratch_bytes(&self) -> u64 {
        8 * (self.windows.length as u64 + 1)
    }
}

/// Makes a type that has a [`Sequence`] a dataset.
macro_rules! dataset_of_sequence {
    ($name:ty) => {
        impl Dataset for $name {
            fn len(&self) -> usize {
                self.sequence.len()
            }

            fn get(&self, index: usize) -> Result<Sample, DataError> {
                self.sequence.get(index)
            }

            fn features(&self) -> Result<Features, DataError> {
                self.sequence.features()
            }

            fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
                self.sequence.label(index)
            }

            fn origin(&self, index: usize) -> String {
                self.sequence.origin(index)
            }

            fn host_bytes(&self) -> u64 {
                self.sequence.host_bytes()
            }

            fn scratch_bytes(&self) -> u64 {
                self.sequence.scratch_bytes()
            }
        }
    };
}
pub(super) use dataset_of_sequence;

/// Tokens in a file, such as nanoGPT's `train.bin`: integers of 16 or 32 bits, the least significant byte first, with nothing else; or a
/// `.npy` file of integers, shape `[n]`. They stay in the file. Sample `i` is a piece of it, its targets are the tokens that follow.
///
/// ```
/// use tightfit::data::Dataset as _;
/// use tightfit::data::text::{Pieces, TokenFile};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("train.bin");
/// // numpy.arange(10, dtype="uint16").tofile("train.bin")
/// std::fs::write(&path, (0..10_u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>())?;
/// let data = TokenFile::open(&path, 50_257, Pieces::new(4))?;
/// assert_eq!(data.len(), 2);
/// assert_eq!(data.get(1)?.get("target").unwrap().values(), &tightfit::data::Values::U32(vec![5, 6, 7, 8]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenFile {
    sequence: Sequence,
}

impl TokenFile {
    /// Opens a file of tokens below `vocabulary`. They have 16 bits where those suffice, as `vocabulary` is at most 65,536.
    ///
    /// # Errors
    /// [`DataError::Missing`] and [`DataError::Io`] where it cannot be read; [`DataError::Corrupt`] where it is no whole number of
    /// tokens; [`DataError::Mismatch`] where it is too short for one sample. A token that is not in the vocabulary is an error of the
    /// sample, which names its place.
    pub fn open(path: impl AsRef<Path>, vocabulary: u32, pieces: Pieces) -> Result<Self, DataError> {
        let bytes = if vocabulary <= 1 << 16 { 2 } else { 4 };
        TokenFile::open_wide(path, bytes, vocabulary, pieces)
    }

    /// The same, where tokens have `bytes` bytes: 2 or 4.
    ///
    /// # Errors
    /// As [`TokenFile::open`].
    pub fn open_wide(path: impl AsRef<Path>, bytes: usize, vocabulary: u32, pieces: Pieces) -> Result<Self, DataError> {
        let path = path.as_ref();
        if ![2, 4].contains(&bytes) || vocabulary == 0 {
            return Err(DataError::Mismatch(format!(
                "tokens of {bytes} bytes and a vocabulary of {vocabulary} are not possible: tokens have 2 or 4 bytes, and a \
                 vocabulary at least one"
            )));
        }
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy")) {
            let array = Npy::open(path)?;
            let &[len] = array.shape() else {
                return Err(corrupt(path, format!("has the shape {:?}: tokens have the shape [n]", array.shape())));
            };
            if !array.is_integer() {
                return Err(corrupt(path, "holds floats: tokens are integers"));
            }
            let sequence = Sequence::new(path, Tokens::Array(Box::new(array)), len, vocabulary, pieces)?;
            return Ok(TokenFile { sequence });
        }
        let file = Positioned::open(path, "give a file of tokens of 16 or 32 bits")?;
        if !file.len().is_multiple_of(bytes as u64) {
            let reason = format!("{} bytes are no whole number of tokens of {bytes} bytes: fetch it again", file.len());
            return Err(corrupt(path, reason));
        }
        let len = usize::try_from(file.len() / bytes as u64).unwrap_or(usize::MAX);
        Ok(TokenFile { sequence: Sequence::new(path, Tokens::Raw(file, bytes), len, vocabulary, pieces)? })
    }

    /// Splits it by place: the last tokens are the test, those before them the validation, in shares of the whole from 0 up.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where the shares leave nothing to train on, or a part is too short for one sample.
    pub fn split(&self, val: f64, test: f64) -> Result<Parts<TokenFile>, DataError> {
        self.sequence.split(val, test)?.map(|sequence| Ok(TokenFile { sequence }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.sequence.path()
    }

    /// Tokens of the file that it has, from 0.
    pub fn tokens(&self) -> Range<usize> {
        self.sequence.range()
    }
}

dataset_of_sequence!(TokenFile);
