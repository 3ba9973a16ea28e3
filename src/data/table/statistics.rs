//! What a column holds, found out cell by cell.

use std::collections::HashMap;

use super::preprocessing::{ColumnKind, Task, boolean, integer, number};
use crate::tensor::format_number;

/// The most categories that a column of text may have.
pub(super) const MOST_CATEGORIES: usize = 4096;
/// Bytes of the longest category.
const LONGEST_CATEGORY: usize = 1024;
/// What one takes besides its own.
const CATEGORY_BYTES: usize = 64;

/// Mean and spread of numbers, in one pass: Welford (1962), "Note on a method for calculating corrected sums of squares and products".
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Moments {
    pub(super) const NONE: Moments =
        Moments { count: 0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Why there are no such statistics, in words, where there are none.
    pub(super) fn kind(&self) -> Result<ColumnKind, String> {
        if self.count == 0 {
            return Err("has no value in any row: leave it out".to_owned());
        }
        // Rounding must not make a spread where there is none.
        let std = if self.min == self.max { 0.0 } else { (self.squares / self.count as f64).max(0.0).sqrt() };
        if !(self.mean.is_finite() && std.is_finite()) {
            let (min, max) = (format_number(self.min), format_number(self.max));
            return Err(format!(
                "has numbers from {min} to {max}, too far apart for a mean and a deviation: rescale it"
            ));
        }
        Ok(ColumnKind::Number { mean: self.mean, std, min: self.min, max: self.max })
    }
}

/// So many numbers for one cell that is none are a column of numbers.
const NUMBERS_FOR_ONE: u64 = 10;

/// All that is known of a column before its kind is.
#[derive(Debug)]
pub(super) struct Guess {
    moments: Moments,
    /// A cell that is no number, and where it is.
    not_a_number: Option<(String, super::Place)>,
    /// How many cells are none.
    others: u64,
    all_booleans: bool,
    all_integers: bool,
    all_decimal_commas: bool,
    /// Different cells, with a number in the order of their first and how often they are there; none where they are too many.
    categories: Option<HashMap<String, (u32, u64)>>,
    /// A cell that is too long for a category.
    is_long: bool,
}

impl Guess {
    pub(super) fn new() -> Self {
        Guess {
            moments: Moments::NONE,
            not_a_number: None,
            others: 0,
            all_booleans: true,
            all_integers: true,
            all_decimal_commas: true,
            categories: Some(HashMap::new()),
            is_long: false,
        }
    }

    /// Takes a cell; returns the number of its category, where categories are still counted. `left` is how many bytes those of all
    /// columns may still take.
    pub(super) fn add(&mut self, cell: &str, place: super::Place, left: &mut usize) -> Option<u32> {
        match number(cell) {
            Some(value) => self.moments.add(value),
            None => {
                self.others += 1;
                self.not_a_number.get_or_insert_with(|| (cell.chars().take(40).collect(), place));
            }
        }
        self.all_booleans &= boolean(cell).is_some();
        self.all_integers &= integer(cell).is_some();
        self.all_decimal_commas &= cell.contains(',') && number(&cell.replacen(',', ".", 1)).is_some();
        let categories = self.categories.as_mut()?;
        if let Some((at, count)) = categories.get_mut(cell) {
            *count += 1;
            return Some(*at);
        }
        self.is_long = cell.len() > LONGEST_CATEGORY;
        let bytes = CATEGORY_BYTES + cell.len();
        if self.is_long || categories.len() == MOST_CATEGORIES || bytes > *left {
            self.categories = None;
            return None;
        }
        *left -= bytes;
        let at = categories.len() as u32;
        categories.insert(cell.to_owned(), (at, 1));
        Some(at)
    }

    /// What an input holds, or a target where numbers are wanted. What is wrong is said without the column's name.
    pub(super) fn kind(&self, place: impl Fn(super::Place) -> String) -> Result<ColumnKind, String> {
        let Some((text, at)) = &self.not_a_number else { return self.moments.kind() };
        let at = || format!("`{}` in {}", text.escape_debug(), place(*at));
        if self.all_decimal_commas {
            return Err(format!("has numbers with decimal commas, such as {}: write them with points", at()));
        }
        if self.is_misspelled() {
            return Err(format!("has numbers, and {}: mend it, or leave the column out", at()));
        }
        if self.all_booleans {
            let count = |wanted: bool| {
                let of = self.categories.iter().flatten().filter(|(cell, _)| boolean(cell) == Some(wanted));
                of.map(|(_, (_, count))| *count).sum::<u64>()
            };
            return Ok(ColumnKind::Boolean { most_frequent: count(true) > count(false) });
        }
        let Some(categories) = &self.categories else {
            let many = if self.is_long {
                format!("texts of more than {LONGEST_CATEGORY} bytes")
            } else {
                format!("more than {MOST_CATEGORIES} different values")
            };
            return Err(format!("has {many}, and not all are numbers (such as {}): leave it out, or mend it", at()));
        };
        let mut names: Vec<_> = categories.iter().map(|(name, (_, count))| (name.clone(), *count)).collect();
        names.sort();
        Ok(text_kind(names))
    }

    /// The classes that a column names, and which class each number of a category is.
    pub(super) fn classes(&self, place: impl Fn(super::Place) -> String) -> Result<(ColumnKind, Vec<u32>), String> {
        let Some(categories) = &self.categories else {
            return Err(match &self.not_a_number {
                Some(_) => self.kind(place).err().unwrap_or_default(),
                None => format!("has more than {MOST_CATEGORIES} different numbers: too many for classes"),
            });
        };
        if categories.is_empty() {
            return self.moments.kind().map(|kind| (kind, Vec::new()));
        }
        if self.all_decimal_commas {
            return self.kind(place).map(|kind| (kind, Vec::new()));
        }
        if let Some((text, at)) = self.not_a_number.as_ref().filter(|_| self.is_misspelled()) {
            let (text, place) = (text.escape_debug(), place(*at));
            return Err(format!("has numbers, and `{text}` in {place}: mend it, or say what the column is"));
        }
        let is_number = self.not_a_number.is_none();
        if is_number && !self.all_integers {
            return Err("has numbers that are no integers: they are no classes".to_owned());
        }
        let name = |cell: &str| class_name(cell, is_number, self.all_booleans);
        let mut counts: HashMap<String, u64> = HashMap::new();
        for (cell, (_, count)) in categories {
            *counts.entry(name(cell)).or_default() += count;
        }
        let mut names: Vec<_> = counts.into_iter().collect();
        // Integers in their order: 2 before 10.
        names.sort_by(|(a, _), (b, _)| match is_number {
            true => integer(a).cmp(&integer(b)),
            false => a.cmp(b),
        });
        let mut classes = vec![0; categories.len()];
        for (cell, (at, _)) in categories {
            let name = name(cell);
            let class = names.iter().position(|(other, _)| *other == name).unwrap_or(0);
            classes[*at as usize] = class as u32;
        }
        Ok((text_kind(names), classes))
    }

    /// Whether a column of numbers has a few cells that are none: nobody means categories then.
    fn is_misspelled(&self) -> bool {
        self.others > 0 && self.moments.count >= NUMBERS_FOR_ONE * self.others
    }

    /// Whether the cells name classes where nobody said what they are.
    pub(super) fn names_classes(&self) -> bool {
        self.not_a_number.is_some()
    }
}

fn class_name(cell: &str, is_number: bool, is_boolean: bool) -> String {
    match () {
        () if is_number => integer(cell).map_or_else(|| cell.to_owned(), |value| value.to_string()),
        () if is_boolean => cell.to_ascii_lowercase(),
        () => cell.to_owned(),
    }
}

fn text_kind(names: Vec<(String, u64)>) -> ColumnKind {
    // The first of those that are as frequent.
    let mut most = 0;
    for (at, (_, count)) in names.iter().enumerate() {
        if *count > names[most].1 {
            most = at;
        }
    }
    ColumnKind::Text { categories: names.into_iter().map(|(name, _)| name).collect(), most_frequent: most as u32 }
}

/// How a target is taken where the user did not say.
pub(super) fn task(wanted: Option<Task>, targets: &[Guess]) -> Task {
    wanted.unwrap_or(match targets {
        [one] if one.names_classes() => Task::Classification,
        _ => Task::Regression,
    })
}
