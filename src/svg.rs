//! What all pictures share: fonts, and text that fits.

/// Estimated width of a character, in font sizes.
const CHAR: f64 = 0.6;

/// Fonts of text, titles, what stands below them, and small print.
pub(crate) const STYLE: &str = "\
text{font-family:'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#212529}\
.title{font-size:20px;font-weight:bold}.sub{font-size:13px;fill:#495057}.small{font-size:11px;fill:#495057}";

/// Text for XML: what has a meaning there is escaped, what is not allowed there is replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Estimated width of a text in pixels. What is not ASCII may be as wide as it is high.
pub(crate) fn width(text: &str, font_size: f64) -> f64 {
    text.chars().map(|c| if c.is_ascii() { CHAR } else { 1.0 }).sum::<f64>() * font_size
}

/// The text where it takes at most `most_width` pixels, else as much of its end as does, after an ellipsis.
pub(crate) fn end_of(text: &str, most_width: f64, font_size: f64) -> String {
    let mut starts = text.char_indices().map(|(at, _)| at);
    match starts.find(|&at| width(&text[at..], font_size) + if at > 0 { font_size } else { 0.0 } <= most_width) {
        Some(0) => text.to_owned(),
        Some(at) => format!("…{}", &text[at..]),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b>&\"c\u{1}\n"), "a&lt;b&gt;&amp;&quot;c\u{fffd} ");
    }

    #[test]
    fn what_does_not_fit_is_cut_at_its_beginning() {
        assert_eq!(end_of("linear1", 100.0, 10.0), "linear1");
        assert_eq!(end_of("features.linear1", 60.0, 10.0), "….linear1");
        assert_eq!(end_of("模型模型", 30.0, 10.0), "…模型");
        assert_eq!(end_of("linear1", 3.0, 10.0), "");
    }
}
