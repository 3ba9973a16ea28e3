//! Vectors of two and four floats as words of 64 bits: some drivers load and store word by word and lane by lane, and have
//! half as much to do this way. Kernels are written without a thought of it, and rewritten here.

/// Functions that the rewritten text uses.
pub(super) const PRELUDE: &str = "\
fn unpack_words(words: vec2<u64>) -> vec4<f32> {
    let low = vec2<u32>(words);
    let high = vec2<u32>(words >> vec2<u32>(32u));
    return bitcast<vec4<f32>>(vec4<u32>(low.x, high.x, low.y, high.y));
}
fn pack_words(values: vec4<f32>) -> vec2<u64> {
    let bits = bitcast<vec4<u32>>(values);
    return vec2<u64>(bits.xz) | (vec2<u64>(bits.yw) << vec2<u32>(32u));
}
fn unpack_word(word: u64) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2<u32>(u32(word), u32(word >> 32u)));
}
fn pack_word(values: vec2<f32>) -> u64 {
    let bits = bitcast<vec2<u32>>(values);
    return u64(bits.x) | (u64(bits.y) << 32u);
}
";

/// What an array of such vectors becomes, and the ending of the functions for its elements.
const TYPES: [(&str, &str, &str); 4] = [
    (": array<Storage2>;", ": array<u64>;\n", "word"),
    (": array<vec2<f32>>;", ": array<u64>;\n", "word"),
    (": array<Storage4>;", ": array<vec2<u64>>;\n", "words"),
    (": array<vec4<f32>>;", ": array<vec2<u64>>;\n", "words"),
];

/// Turns every storage binding of vectors into an array of words, and packs and unpacks where it is indexed. No other
/// variable that is indexed may have the name of such a binding.
pub(super) fn make_wide(text: &str) -> String {
    let mut names = Vec::new();
    let lines = text.lines().map(|line| {
        let declared = TYPES.iter().filter(|_| line.contains("var<storage"));
        let declared = declared.filter_map(|(from, to, word)| Some((line.strip_suffix(from)?, to, word))).next();
        match declared {
            Some((start, to, word)) => {
                names.push((start.rsplit(' ').next().unwrap_or(start), *word));
                format!("{start}{to}")
            }
            None => format!("{line}\n"),
        }
    });
    let text: String = lines.collect();
    if names.is_empty() { text } else { rewrite(&text, &names) }
}

/// `names` are the bindings, each with the ending of its functions.
fn rewrite(text: &str, names: &[(&str, &str)]) -> String {
    let mut output = String::with_capacity(text.len() + text.len() / 4);
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if length > 0 {
            let (name, after) = rest.split_at(length);
            let binding = names.iter().find(|(binding, _)| *binding == name && !output.ends_with('.'));
            let index = binding.zip(after.strip_prefix('[').and_then(|inside| split_at_close(inside, ']')));
            let Some(((_, word), (index, after))) = index else {
                output.push_str(name);
                rest = after;
                continue;
            };
            let element = format!("{name}[{}]", rewrite(index, names));
            let assigned = after.trim_start();
            if let Some(value) = assigned.strip_prefix("= ") {
                let (value, after) = split_at_close(value, ';').unwrap_or((value, ""));
                output.push_str(&format!("{element} = pack_{word}({});", rewrite(value, names)));
                rest = after;
            } else if let Some(value) = assigned.strip_prefix("+= ") {
                let (value, after) = split_at_close(value, ';').unwrap_or((value, ""));
                let value = rewrite(value, names);
                output.push_str(&format!("{element} = pack_{word}(unpack_{word}({element}) + {value});"));
                rest = after;
            } else {
                output.push_str(&format!("unpack_{word}({element})"));
                rest = after;
            }
        } else if rest.starts_with("//") {
            let (comment, after) = rest.split_at(rest.find('\n').unwrap_or(rest.len()));
            output.push_str(comment);
            rest = after;
        } else {
            let mut chars = rest.chars();
            output.extend(chars.next());
            rest = chars.as_str();
        }
    }
    output
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What stands before the first `end` that is in no brackets, and what after it.
fn split_at_close(text: &str, end: char) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        if depth == 0 && c == end {
            return Some((&text[..at], &text[at + 1..]));
        }
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_packed_and_unpacked() {
        let text = "\
@group(0) @binding(0) var<storage, read> a: array<Storage4>; // a[0]
@group(0) @binding(1) var<storage, read> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
c[i] = Storage4(Accum4(a[at[i] + 1u]) * 2.0);
c[(i)] += a[i]; let x = data[a[0][1]].c[0];
";
        let expected = "\
@group(0) @binding(0) var<storage, read> a: array<vec2<u64>>;
@group(0) @binding(1) var<storage, read> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<vec2<u64>>;
c[i] = pack_words(Storage4(Accum4(unpack_words(a[at[i] + 1u])) * 2.0));
c[(i)] = pack_words(unpack_words(c[(i)]) + unpack_words(a[i])); let x = data[unpack_words(a[0])[1]].c[0];
";
        assert_eq!(make_wide(&text.replace(" // a[0]", "")), expected);
        assert_eq!(make_wide("let a = b[0];"), "let a = b[0];\n");
        assert_eq!(rewrite("a[0] // a[0]", &[("a", "word")]), "unpack_word(a[0]) // a[0]");
    }
}
