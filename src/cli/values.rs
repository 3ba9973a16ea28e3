//! What values of options may be.

use std::ffi::OsString;
use std::num::{IntErrorKind, NonZeroUsize, ParseIntError};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use tightfit::plan::Limits;
use tightfit::tensor::Shape;

/// One of these names, for what it stands for.
pub(crate) fn choice<T: Clone + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    PossibleValuesParser::new(names).map(move |given| {
        let chosen = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(&given));
        chosen.expect("bug: a choice that is not listed").1.clone()
    })
}

/// A name that need not be UTF-8.
pub(crate) fn not_empty() -> impl TypedValueParser<Value = OsString> {
    PathBufValueParser::new().map(PathBuf::into_os_string)
}

/// A whole number of at least 1.
pub(crate) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number =
        text.parse::<u64>().map_err(|error| out_of_range(&error, "it must be a whole number of at least 1"))?;
    let number = Some(number).filter(|number| *number > 0).ok_or("it must be a whole number of at least 1")?;
    // Run files hold no larger ones.
    if i64::try_from(number).is_err() {
        return Err(TOO_LARGE.to_owned());
    }
    T::try_from(number).map_err(|_| TOO_LARGE.to_owned())
}

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let most = Limits::MOST_THREADS;
    let threads = count(text).ok().and_then(NonZeroUsize::new).filter(|threads| threads.get() <= most);
    threads.ok_or_else(|| format!("it must be a whole number from 1 to {most}"))
}

const TOO_LARGE: &str = "it is too large a number";

/// Why digits are no number of this kind.
fn out_of_range(error: &ParseIntError, otherwise: &str) -> String {
    if *error.kind() == IntErrorKind::PosOverflow { TOO_LARGE } else { otherwise }.to_owned()
}

/// Extents with an `x` between them, or a comma.
pub(crate) fn shape(text: &str) -> Result<Shape, String> {
    let extents: Result<Vec<usize>, _> = text.split(['x', 'X', '×', ',']).map(str::parse).collect();
    let extents = extents.ok().filter(|extents| extents.iter().all(|&extent| extent > 0));
    extents.map(Shape::from).ok_or_else(|| "it must be whole numbers of at least 1, like 3x224x224".to_owned())
}

pub(crate) fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| out_of_range(&error, "it must be a whole number, 0 or above"))
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = real(text).filter(|x| *x > 0.0).ok_or("it must be a number above 0")?;
    in_single_precision(number)
}

pub(crate) fn non_negative(text: &str) -> Result<f64, String> {
    let number = real(text).filter(|x| *x >= 0.0).ok_or("it must be a number, 0 or above")?;
    if number == 0.0 { Ok(number) } else { in_single_precision(number) }
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    real(text).filter(|x| (0.0..1.0).contains(x)).ok_or_else(|| "it must be 0 or above and below 1".to_owned())
}

fn real(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// A number above 0 of which kernels, which compute in single precision, make neither 0 nor infinity.
fn in_single_precision(number: f64) -> Result<f64, String> {
    if (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&number) {
        return Ok(number);
    }
    Err("it must be from 1.2e-38 to 3.4e38, which is what single precision holds".to_owned())
}
