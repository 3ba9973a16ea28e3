//! Classes by their names.

use std::collections::BTreeMap;

use crate::error::{DataError, unknown};

/// Labels that are integers are below this.
const MAX_LABEL: u32 = 1 << 20;

/// Names of classes as they come, each once.
#[derive(Default)]
pub(in crate::data) struct Names {
    numbers: BTreeMap<String, u32>,
    /// Of each row.
    found: Vec<u32>,
}

impl Names {
    pub(in crate::data) fn add(&mut self, name: &str) {
        let next = self.numbers.len() as u32;
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => *self.numbers.entry(name.to_owned()).or_insert(next),
        };
        self.found.push(number);
    }

    /// Labels of the rows, the number of classes and their names: in the order of their names, or as they are given, or none where all are
    /// integers. `error` makes one of the number of a row and the reason.
    pub(in crate::data) fn labels(
        self,
        given: Option<&[String]>,
        error: impl Fn(usize, String) -> DataError,
    ) -> Result<(Vec<u32>, u32, Vec<String>), DataError> {
        let Names { numbers, mut found } = self;
        let integer = |name: &str| name.parse::<u32>().ok();
        let is_integer = numbers.keys().all(|name| integer(name).is_some());
        // What the number of each name becomes.
        let mut labels = vec![0; numbers.len()];
        let row = |number: u32| found.iter().position(|found| *found == number).unwrap_or_default();
        for (at, (name, &number)) in numbers.iter().enumerate() {
            let label = match given {
                Some(names) => {
                    let of_name = names.iter().position(|known| known == name);
                    let of_integer = || integer(name).map(|label| label as usize).filter(|label| *label < names.len());
                    of_name.or_else(of_integer).ok_or_else(|| {
                        let sentence = unknown("class", name, names.iter().map(String::as_str));
                        error(row(number), sentence)
                    })?
                }
                None if is_integer => integer(name).unwrap_or_default() as usize,
                None => at,
            };
            if label as u64 >= u64::from(MAX_LABEL) {
                let reason = format!("label {label} is too large: labels go from 0 to {}", MAX_LABEL - 1);
                return Err(error(row(number), reason));
            }
            labels[number as usize] = label as u32;
        }
        found.iter_mut().for_each(|number| *number = labels[*number as usize]);
        let (classes, names) = match given {
            Some(names) => (names.len() as u32, names.to_vec()),
            None if is_integer => (labels.iter().max().map_or(0, |label| label + 1), Vec::new()),
            None => (labels.len() as u32, numbers.into_keys().collect()),
        };
        Ok((found, classes, names))
    }
}
