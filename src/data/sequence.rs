//! How a long sequence is cut into samples.

use std::ops::Range;

use crate::error::DataError;

/// A sequence in up to three parts that follow each other, so that no window reaches from one into another.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts<T> {
    /// The first part, to be trained on.
    pub training: T,
    /// The one after it, where one was asked for.
    pub validation: Option<T>,
    /// The last one, where one was asked for.
    pub test: Option<T>,
}

impl<T> Parts<T> {
    pub(super) fn map<U>(self, mut each: impl FnMut(T) -> Result<U, DataError>) -> Result<Parts<U>, DataError> {
        Ok(Parts {
            training: each(self.training)?,
            validation: self.validation.map(&mut each).transpose()?,
            test: self.test.map(&mut each).transpose()?,
        })
    }
}

/// The parts of a range, of which these shares are the last two.
pub(super) fn parts(range: &Range<usize>, val: f64, test: f64) -> Result<Parts<Range<usize>>, DataError> {
    let is_share = |share: f64| (0.0..1.0).contains(&share);
    if !(is_share(val) && is_share(test) && val + test < 1.0) {
        return Err(DataError::Mismatch(format!(
            "shares of {val} for validation and {test} for the test leave nothing to train on: each must be 0 or more, and both \
             below 1 together"
        )));
    }
    let len = range.len() as f64;
    let ends = [1.0 - val - test, 1.0 - test].map(|share| range.start + (len * share).round() as usize);
    let part = |start: usize, end: usize, share: f64| (share > 0.0).then_some(start..end);
    Ok(Parts {
        training: range.start..ends[0],
        validation: part(ends[0], ends[1], val),
        test: part(ends[1], range.end, test),
    })
}

/// Windows of a sequence: how long they are, and where they begin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Windows {
    /// Entries of the input.
    pub(super) length: usize,
    /// Entries after it that are to be known.
    pub(super) ahead: usize,
    /// Entries from the beginning of one window to that of the next.
    pub(super) stride: usize,
    /// How many streams the sequence is read in, side by side.
    pub(super) streams: Option<usize>,
}

impl Windows {
    /// How many windows a sequence has.
    pub(super) fn count(&self, what: &str, len: usize) -> Result<usize, DataError> {
        let Windows { length, ahead, stride, streams } = *self;
        if length == 0 || stride == 0 || streams == Some(0) {
            return Err(DataError::Mismatch(
                "the length of windows, their stride and the number of streams must be at least 1".to_owned(),
            ));
        }
        let count = match streams {
            None => len.checked_sub(length.saturating_add(ahead)).map_or(0, |last| last / stride + 1),
            Some(streams) => self.per_stream(len, streams) * streams,
        };
        if count == 0 {
            let streams = streams.map(|streams| format!(" for each of {streams} streams")).unwrap_or_default();
            return Err(DataError::Mismatch(format!(
                "{len} {what} are too few for a window of {length} with {ahead} more after it{streams}: use shorter windows, or a \
                 longer part"
            )));
        }
        Ok(count)
    }

    /// Where a window begins: with streams, window after window of one goes on where the one before ended.
    pub(super) fn start(&self, index: usize, len: usize) -> usize {
        match self.streams {
            None => index * self.stride,
            Some(streams) => (index % streams * self.per_stream(len, streams) + index / streams) * self.length,
        }
    }

    fn per_stream(&self, len: usize, streams: usize) -> usize {
        len.saturating_sub(self.ahead) / streams / self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_before_the_end() {
        let windows = |stride, streams| Windows { length: 3, ahead: 2, stride, streams };
        for len in 5..40 {
            for stride in 1..5 {
                let count = windows(stride, None).count("rows", len).expect("some");
                let last = windows(stride, None).start(count - 1, len);
                assert!(last + 5 <= len && last + stride + 5 > len, "{len} {stride}");
            }
            for streams in 1..3 {
                let windows = windows(1, Some(streams));
                let Ok(count) = windows.count("rows", len) else { continue };
                assert!(count.is_multiple_of(streams));
                let starts: Vec<_> = (0..count).map(|index| windows.start(index, len)).collect();
                assert!(starts.iter().all(|start| start + 5 <= len), "{len} {streams}");
                // A batch goes on where the one before ended.
                assert!((streams..count).all(|index| starts[index] == starts[index - streams] + 3));
                let mut sorted = starts.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), count);
            }
        }
        assert!(windows(1, None).count("rows", 4).expect_err("short").to_string().contains("4 rows are too few"));
        assert!(windows(0, None).count("rows", 9).is_err() && windows(1, Some(0)).count("rows", 9).is_err());
        let endless = Windows { length: usize::MAX, ahead: 2, stride: 1, streams: None };
        assert!(endless.count("rows", 9).is_err());
    }

    #[test]
    fn parts_follow_each_other() {
        let found = parts(&(10..110), 0.2, 0.1).expect("possible");
        assert_eq!(found, Parts { training: 10..80, validation: Some(80..100), test: Some(100..110) });
        assert_eq!(
            parts(&(0..5), 0.0, 0.4).expect("possible"),
            Parts { training: 0..3, validation: None, test: Some(3..5) }
        );
        for (val, test) in [(0.5, 0.5), (-0.1, 0.1), (f64::NAN, 0.0), (1.0, 0.0)] {
            assert!(parts(&(0..5), val, test).is_err(), "{val} {test}");
        }
    }
}
