//! Characters and their numbers.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{CHARACTERS, character};
use crate::error::DataError;

/// What stands for a token that is no character.
const REPLACEMENT: char = '\u{fffd}';

/// The characters that a model knows, each with its number, its token: what must be kept with a model.
///
/// ```
/// use tightfit::data::text::Vocabulary;
///
/// let vocabulary = Vocabulary::new("hello".chars(), true)?;
/// assert_eq!(vocabulary.len(), 5, "e, h, l, o, and one for all others");
/// let tokens = vocabulary.encode("hey")?;
/// assert_eq!((tokens.as_slice(), vocabulary.decode(&tokens)), (&[1, 0, 4][..], "he\u{fffd}".to_owned()));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Listed", into = "Listed")]
pub struct Vocabulary {
    characters: Vec<char>,
    /// The token of all other characters.
    unknown: Option<u32>,
    tokens: HashMap<char, u32>,
}

/// A vocabulary as it is written: characters in the order of their tokens.
#[derive(Clone, Serialize, Deserialize)]
struct Listed {
    characters: String,
    unknown: Option<u32>,
}

impl Vocabulary {
    /// These characters, in their order, each once; with `unknown`, one token more that stands for all others.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where there are none.
    pub fn new(characters: impl IntoIterator<Item = char>, unknown: bool) -> Result<Self, DataError> {
        let mut characters: Vec<_> = characters.into_iter().collect();
        characters.sort_unstable();
        characters.dedup();
        let unknown = unknown.then_some(characters.len() as u32);
        Vocabulary::listed(characters, unknown)
    }

    /// The 96 of ASCII that print, and the line feed, as [`token`](super::token) numbers them; `?` stands for all others.
    pub fn ascii() -> Self {
        let characters = (0..CHARACTERS).map(character).collect();
        Vocabulary::listed(characters, Some(super::token('?'))).expect("bug: characters of ASCII are different ones")
    }

    fn listed(characters: Vec<char>, unknown: Option<u32>) -> Result<Self, DataError> {
        let tokens: HashMap<_, _> = characters.iter().copied().zip(0..).collect();
        if characters.is_empty() || tokens.len() != characters.len() {
            return Err(DataError::Mismatch("a vocabulary must have characters, each once".to_owned()));
        }
        if unknown.is_some_and(|unknown| unknown as usize > characters.len()) {
            return Err(DataError::Mismatch("the token of unknown characters is not in the vocabulary".to_owned()));
        }
        Ok(Vocabulary { characters, unknown, tokens })
    }

    /// Number of tokens: what a model has to choose from.
    pub fn len(&self) -> u32 {
        let known = self.characters.len() as u32;
        self.unknown.map_or(known, |unknown| known.max(unknown + 1))
    }

    /// Never: a vocabulary has characters.
    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// The token of a character; `None` where it is not known and no token stands for such.
    pub fn token(&self, character: char) -> Option<u32> {
        self.tokens.get(&character).copied().or(self.unknown)
    }

    /// The character of a token; the replacement character where it is that of unknown ones, or none.
    pub fn character(&self, token: u32) -> char {
        self.characters.get(token as usize).copied().unwrap_or(REPLACEMENT)
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where a character is not known, and no token stands for such.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let token = |(at, character): (usize, char)| {
            self.token(character).ok_or_else(|| DataError::Mismatch(self.unknown_at(character, at as u64)))
        };
        text.char_indices().map(token).collect()
    }

    /// The text of tokens.
    pub fn decode(&self, tokens: &[u32]) -> String {
        tokens.iter().map(|token| self.character(*token)).collect()
    }

    /// What to say of a character that is not known.
    pub(super) fn unknown_at(&self, character: char, byte: u64) -> String {
        format!(
            "character `{}` at byte {byte} is not one of the {} of the vocabulary: use one with a token for unknown characters",
            character.escape_debug(),
            self.characters.len()
        )
    }
}

impl TryFrom<Listed> for Vocabulary {
    type Error = DataError;

    fn try_from(Listed { characters, unknown }: Listed) -> Result<Self, DataError> {
        Vocabulary::listed(characters.chars().collect(), unknown)
    }
}

impl From<Vocabulary> for Listed {
    fn from(Vocabulary { characters, unknown, .. }: Vocabulary) -> Self {
        Listed { characters: characters.into_iter().collect(), unknown }
    }
}
