//! The header of an array in NumPy's format: what its numbers are, and its shape.
//!
//! A file starts with `\x93NUMPY`, two bytes for the version, and the length of the header, 2 bytes in version 1 and 4 in others. The
//! header is a literal of Python: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`. The numbers follow.
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

/// The longest header that is read. That of numbers needs a few hundred bytes.
pub(super) const MOST_HEADER_BYTES: usize = 1 << 14;
/// Bytes in which the length of the header stands.
pub(super) const PREFIX_BYTES: usize = 12;
const MAGIC: &[u8] = b"\x93NUMPY";

/// What the numbers of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bool,
    Unsigned,
    Signed,
    Float,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) element: Element,
    /// Bytes of one number.
    pub(super) size: usize,
    pub(super) big_endian: bool,
    pub(super) shape: Vec<usize>,
}

/// Where the text of a header is: its first byte, and the one after it.
pub(super) fn extent(prefix: &[u8]) -> Result<(usize, usize), String> {
    if !prefix.starts_with(MAGIC) || prefix.len() < PREFIX_BYTES {
        return Err("is not an array of NumPy: it does not start with \\x93NUMPY".to_owned());
    }
    let (start, len) = match prefix[6] {
        1 => (10, usize::from(u16::from_le_bytes([prefix[8], prefix[9]]))),
        2 | 3 => (12, u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]) as usize),
        version => return Err(format!("is of version {version} of NumPy's format; 1 to 3 are known")),
    };
    if len > MOST_HEADER_BYTES {
        return Err(format!("has a header of {len} bytes, more than the {MOST_HEADER_BYTES} of an array of numbers"));
    }
    Ok((start, start + len))
}

/// What the text of a header says.
pub(super) fn parse(text: &[u8]) -> Result<Header, String> {
    let damaged = || "has a damaged header: save it again with numpy.save".to_owned();
    let text = std::str::from_utf8(text).map_err(|_| damaged())?;
    let mut parser = Parser { rest: text };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    parser.expect('{').ok_or_else(damaged)?;
    while parser.expect('}').is_none() {
        let key = parser.string().ok_or_else(damaged)?;
        parser.expect(':').ok_or_else(damaged)?;
        match key {
            "descr" if parser.peek() == Some('[') => {
                return Err("has named fields (a structured array): save each field as an array of its own".to_owned());
            }
            "descr" => descr = parser.string(),
            "fortran_order" => fortran = parser.boolean(),
            "shape" => shape = parser.tuple(),
            _ => return Err(damaged()),
        }
        if parser.expect(',').is_none() && parser.peek() != Some('}') {
            return Err(damaged());
        }
    }
    let (descr, fortran, shape) = descr.zip(fortran).zip(shape).map(|((a, b), c)| (a, b, c)).ok_or_else(damaged)?;
    let (element, size, big_endian) = self::element(descr)?;
    if fortran && shape.len() > 1 {
        return Err("is in Fortran's order: save numpy.ascontiguousarray(array)".to_owned());
    }
    Ok(Header { element, size, big_endian, shape })
}

fn element(descr: &str) -> Result<(Element, usize, bool), String> {
    let (order, kind) = descr.split_at_checked(1).unwrap_or(("", descr));
    let element = match kind {
        "b1" => (Element::Bool, 1),
        "u1" => (Element::Unsigned, 1),
        "u2" => (Element::Unsigned, 2),
        "u4" => (Element::Unsigned, 4),
        "u8" => (Element::Unsigned, 8),
        "i1" => (Element::Signed, 1),
        "i2" => (Element::Signed, 2),
        "i4" => (Element::Signed, 4),
        "i8" => (Element::Signed, 8),
        "f2" => (Element::Float, 2),
        "f4" => (Element::Float, 4),
        "f8" => (Element::Float, 8),
        _ if kind.starts_with('O') => {
            return Err("holds objects of Python: save an array of numbers, all rows of one length".to_owned());
        }
        _ => {
            let shown: String = descr.chars().take(20).collect();
            return Err(format!(
                "holds elements of type `{}`; booleans, integers and floats of up to 64 bits can be read, convert it with astype",
                shown.escape_debug()
            ));
        }
    };
    let big_endian = match order {
        "<" | "|" => false,
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        _ => return Err("has a damaged header: save it again with numpy.save".to_owned()),
    };
    Ok((element.0, element.1, big_endian))
}

/// What is not read yet of a header.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        (self.peek()? == wanted).then(|| self.rest = &self.rest[wanted.len_utf8()..])
    }

    fn string(&mut self) -> Option<&'a str> {
        let quote = self.peek().filter(|c| ['\'', '"'].contains(c))?;
        let (text, rest) = self.rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Some(value);
            }
        }
        None
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        self.expect('(')?;
        let mut extents = Vec::new();
        while self.expect(')').is_none() {
            self.peek();
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            extents.push(self.rest[..end].parse().ok()?);
            self.rest = &self.rest[end..];
            // Python 2 wrote long integers so.
            self.rest = self.rest.strip_prefix('L').unwrap_or(self.rest);
            if self.expect(',').is_none() && self.peek() != Some(')') {
                return None;
            }
        }
        Some(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_type_and_shape() {
        let of = |descr: &str, shape: &str| {
            parse(format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}   \n").as_bytes())
        };
        let header = of(">i4", "(3, 4L)").expect("valid");
        assert_eq!(header, Header { element: Element::Signed, size: 4, big_endian: true, shape: vec![3, 4] });
        assert_eq!(of("|u1", "(5,)").expect("valid").shape, [5]);
        assert_eq!(of("|b1", "()").expect("valid").shape, [0; 0]);
        for (descr, shape, word) in [
            ("<c8", "(1,)", "`<c8`"),
            ("|O", "(1,)", "objects of Python"),
            ("|S3", "(1,)", "`|S3`"),
            ("<f4", "(-1,)", "damaged"),
            ("<f4", "(99999999999999999999,)", "damaged"),
            ("<f4", "(1 2)", "damaged"),
            ("é4", "(1,)", "`é4`"),
            ("", "(1,)", "``"),
        ] {
            assert!(of(descr, shape).expect_err("refused").contains(word), "{descr} {shape}");
        }
        let structured = b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }";
        assert!(parse(structured).expect_err("refused").contains("structured"));
        assert!(extent(b"PK\x03\x04").is_err() && extent(b"\x93NUMPY\x09\x00\x01\x00\x00\x00").is_err());
        assert!(extent(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").expect_err("refused").contains("4294967295 bytes"));
    }
}
