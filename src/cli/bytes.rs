//! Sizes as people write them.

const ADVICE: &str = "write a number of bytes or a size such as 64MiB or 1.5GB";

/// Units and their bytes, in lower case.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Reads `64MiB`, `1.5GB`, `100 KiB` or plain bytes; a fraction of a byte is dropped.
///
/// Exact: no number passes through a float.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("it is empty: {ADVICE}"));
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if text.starts_with('-') {
        return Err(format!("it must be above 0: {ADVICE}"));
    }
    if whole.is_empty() || fraction.contains('.') || (fraction.is_empty() && number.contains('.')) {
        return Err(format!("this is not a size: {ADVICE}"));
    }
    let unit = unit.trim_start().to_ascii_lowercase();
    let Some(&(_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{}` is not a unit: {ADVICE}", unit.escape_default()));
    };
    let too_large = || format!("it is larger than any memory: {ADVICE}");
    let whole = whole.parse::<u64>().map_err(|_| too_large())?.checked_mul(scale).ok_or_else(too_large)?;
    // Digits beyond the 18th are far below a byte in every unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = fraction.parse::<u128>().unwrap_or(0) * u128::from(scale) / 10u128.pow(fraction.len() as u32);
    let bytes = whole.checked_add(part as u64).ok_or_else(too_large)?;
    match bytes {
        0 => Err(format!("it must be above 0: {ADVICE}")),
        _ if scale == 1 && !fraction.is_empty() => Err(format!("this is not a whole number of bytes: {ADVICE}")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly() {
        for (text, bytes) in [
            ("1", 1),
            ("123456789", 123_456_789),
            ("64MiB", 67_108_864),
            ("64 mib", 67_108_864),
            ("1.5GB", 1_500_000_000),
            ("100KiB", 102_400),
            ("0.5KiB", 512),
            ("2GiB", 2_147_483_648),
            ("12b", 12),
            ("1TB", 1_000_000_000_000),
            ("0.3333333333333333333333333333KB", 333),
            ("18446744073709551615", u64::MAX),
            (" 7 ", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_advice() {
        for (text, word) in [
            ("", "empty"),
            ("  ", "empty"),
            ("0", "above 0"),
            ("0MiB", "above 0"),
            ("0.1", "above 0"),
            ("-5", "above 0"),
            ("-5MiB", "above 0"),
            ("1e400", "not a unit"),
            ("NaN", "not a size"),
            ("inf", "not a size"),
            ("1.2.3", "not a size"),
            ("1.5", "whole number"),
            ("1.", "not a size"),
            (".5GB", "not a size"),
            ("12 parsecs", "not a unit"),
            ("5M", "not a unit"),
            ("18446744073709551616", "larger than any memory"),
            ("20000000000GiB", "larger than any memory"),
            ("18446744073709551.616KB", "larger than any memory"),
            ("١MiB", "not a size"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(word) && message.contains("64MiB"), "{text}: {message}");
        }
    }
}
