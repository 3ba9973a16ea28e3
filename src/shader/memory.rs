//! Bindings whose elements lie in memory in another form than kernels are written for: vectors as words of 64 bits, which some drivers
//! load and store in half the time because they go lane by lane, and floats in 16 bits. Kernels are written without a thought of it,
//! and rewritten here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{HalfForm, StorageType, Variant};

/// Functions for vectors of four floats of 16 bits as words of 64 bits.
const HALF_WORDS: &str = "\
fn split_word(word: u64) -> vec2<u32> {
    return vec2<u32>(u32(word), u32(word >> 32u));
}
fn join_word(halves: vec2<u32>) -> u64 {
    return u64(halves.x) | (u64(halves.y) << 32u);
}
";

/// Functions for vectors as words of 64 bits.
const WORDS: &str = "\
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

/// The files with the functions for floats of 16 bits that a variant needs.
pub(super) fn files(variant: &Variant) -> BTreeSet<&'static str> {
    let of_form = |&(_, half): &(u32, HalfForm)| match half {
        HalfForm::NativeF16 => None,
        HalfForm::F16 => Some("shared/f16.wgsl"),
        HalfForm::Bf16 => Some("shared/bf16.wgsl"),
    };
    variant.halves.iter().filter_map(of_form).collect()
}

/// How the elements of a binding lie in memory.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Vectors of two or four f32 as words of 64 bits.
    Words,
    /// Floats of 16 bits.
    Half(HalfForm),
}

/// A binding in another form.
struct Binding<'t> {
    name: &'t str,
    form: Form,
    /// Elements of one of its vectors.
    lanes: usize,
    /// Whether vectors of 64 bits are words.
    in_words: bool,
    /// Whether single elements of it are written, two of which share a word.
    shares_words: bool,
}

impl Binding<'_> {
    /// The type of its array.
    fn memory(&self) -> &'static str {
        match (self.form, self.lanes) {
            (Form::Words, 2) => "u64",
            (Form::Words, _) => "vec2<u64>",
            (Form::Half(HalfForm::NativeF16), 1) => "f16",
            (Form::Half(HalfForm::NativeF16), 2) => "vec2<f16>",
            (Form::Half(HalfForm::NativeF16), _) => "vec4<f16>",
            (Form::Half(_), 1) if self.shares_words => "atomic<u32>",
            (Form::Half(_), 1 | 2) => "u32",
            (Form::Half(_), 4) if self.in_words => "u64",
            (Form::Half(_), _) => "vec2<u32>",
        }
    }

    /// The f32 values at an index.
    fn load(&self, index: &str) -> String {
        let Binding { name, form, lanes, .. } = self;
        match (form, lanes) {
            (Form::Words, 2) => format!("unpack_word({name}[{index}])"),
            (Form::Words, _) => format!("unpack_words({name}[{index}])"),
            (Form::Half(HalfForm::NativeF16), 1) => format!("f32({name}[{index}])"),
            (Form::Half(HalfForm::NativeF16), lanes) => format!("vec{lanes}<f32>({name}[{index}])"),
            (Form::Half(_), 1) => format!("half_of_{name}(u32({index}))"),
            (Form::Half(half), 4) if self.in_words => format!("unpack_{}x4(split_word({name}[{index}]))", half.word()),
            (Form::Half(half), lanes) => format!("unpack_{}x{lanes}({name}[{index}])", half.word()),
        }
    }

    /// The statement that writes f32 values at an index.
    fn store(&self, index: &str, value: &str) -> String {
        let Binding { name, form, lanes, .. } = self;
        match (form, lanes) {
            (Form::Words, 2) => format!("{name}[{index}] = pack_word({value});"),
            (Form::Words, _) => format!("{name}[{index}] = pack_words({value});"),
            (Form::Half(HalfForm::NativeF16), 1) => format!("{name}[{index}] = f16({value});"),
            (Form::Half(HalfForm::NativeF16), lanes) => format!("{name}[{index}] = vec{lanes}<f16>({value});"),
            (Form::Half(_), 1) => format!("set_half_of_{name}(u32({index}), {value});"),
            (Form::Half(half), 4) if self.in_words => {
                format!("{name}[{index}] = join_word(pack_{}x4({value}));", half.word())
            }
            (Form::Half(half), lanes) => format!("{name}[{index}] = pack_{}x{lanes}({value});", half.word()),
        }
    }

    /// Functions for single elements of 16 bits. The other half of a word may be written at the same time: changing bits that
    /// differ leaves it alone.
    fn functions(&self) -> String {
        let (Form::Half(half), 1) = (self.form, self.lanes) else { return String::new() };
        if half == HalfForm::NativeF16 {
            return String::new();
        }
        let (name, half) = (self.name, half.word());
        let word = if self.shares_words { format!("atomicLoad(&{name}[i >> 1u])") } else { format!("{name}[i >> 1u]") };
        let mut text =
            format!("fn half_of_{name}(i: u32) -> f32 {{\n    return unpack_{half}x2({word})[i & 1u];\n}}\n");
        if self.shares_words {
            let _ = write!(
                text,
                "fn set_half_of_{name}(i: u32, value: f32) {{\n    \
                 let changed = ({word} ^ pack_{half}x2(vec2<f32>(value))) & (0xffffu << (16u * (i & 1u)));\n    \
                 atomicXor(&{name}[i >> 1u], changed);\n}}\n"
            );
        }
        text
    }
}

/// Rewrites the bindings that a variant has in other forms, and whatever indexes them. No other variable that is indexed may
/// have the name of such a binding.
pub(super) fn rewrite(text: &str, variant: &Variant) -> String {
    let aliases = aliases(text);
    let mut bindings: Vec<Binding<'_>> = Vec::new();
    for line in text.lines() {
        if let Some((name, number, element)) = declaration(line)
            && let Some(number) = value_of(number, text, variant)
            && let Some((form, lanes)) = form(variant, number, element, &aliases)
        {
            let shares_words = lanes == 1 && is_written(text, name);
            let in_words = variant.storage == StorageType::F32Words;
            bindings.push(Binding { name, form, lanes, in_words, shares_words });
        }
    }
    if bindings.is_empty() {
        return text.to_owned();
    }
    let has_words = bindings.iter().any(|binding| binding.form == Form::Words);
    let mut output = if has_words { WORDS.to_owned() } else { String::new() };
    if bindings.iter().any(|binding| binding.memory() == "u64" && binding.form != Form::Words) {
        output.push_str(HALF_WORDS);
    }
    let mut body = String::with_capacity(text.len());
    for line in text.lines() {
        let declared = declaration(line).and_then(|(name, ..)| bindings.iter().find(|binding| binding.name == name));
        match declared {
            Some(binding) => {
                let start = line.rfind("array<").unwrap_or(line.len());
                let _ = writeln!(body, "{}array<{}>;", &line[..start], binding.memory());
            }
            None => {
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    output.push_str(&rewrite_uses(&body, &bindings));
    bindings.iter().for_each(|binding| output.push_str(&binding.functions()));
    output
}

/// Names of types for others.
fn aliases(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix("alias ")?.strip_suffix(';')?.split_once(" = ")).collect()
}

/// The name of a storage buffer that a line declares, its number, which may be a constant, and the type of its elements.
fn declaration(line: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = line.split_once("var<storage")?;
    let number = before.split_once("@binding(")?.1.split_once(')')?.0;
    let (name, ty) = after.split_once('>')?.1.split_once(':')?;
    Some((name.trim(), number.trim(), ty.trim().strip_prefix("array<")?.strip_suffix(">;")?))
}

/// The sum of numbers, and of constants of the text or the prelude.
fn value_of(sum: &str, text: &str, variant: &Variant) -> Option<u32> {
    sum.split('+').map(|term| constant(term.trim(), text, variant)).sum()
}

/// A number, or the constant of this name.
fn constant(word: &str, text: &str, variant: &Variant) -> Option<u32> {
    let literal = |word: &str| word.strip_suffix('u').unwrap_or(word).parse().ok();
    let in_text = || {
        let constants =
            text.lines().filter_map(|line| line.strip_prefix("const ")?.strip_suffix(';')?.split_once(" = "));
        constants.filter(|(name, _)| *name == word).find_map(|(_, value)| literal(value))
    };
    let in_prelude = || variant.consts.iter().find(|(name, _)| *name == word).map(|&(_, value)| value);
    literal(word).or_else(in_prelude).or_else(in_text)
}

/// The form of a binding, if it is another than that of the text, and how many elements are in one of its vectors.
fn form(variant: &Variant, number: u32, element: &str, aliases: &BTreeMap<&str, &str>) -> Option<(Form, usize)> {
    let half = variant.halves.iter().find(|(binding, _)| *binding == number).map(|&(_, half)| half);
    let as_words = ["Storage2", "vec2<f32>", "Storage4", "vec4<f32>"].contains(&element);
    let lanes = match aliases.get(element).copied().unwrap_or(element) {
        "Storage" | "Accum" | "f32" => 1,
        "Storage2" | "Accum2" | "vec2<Accum>" | "vec2<f32>" => 2,
        "Storage4" | "Accum4" | "vec4<f32>" => 4,
        _ => return None,
    };
    match half {
        Some(half) => Some((Form::Half(half), lanes)),
        None if variant.storage == StorageType::F32Words && as_words => Some((Form::Words, lanes)),
        None => None,
    }
}

/// Whether an element of this array is assigned to.
fn is_written(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(|c| is_word(c) || c == '.');
        let after = text[at + name.len()..].strip_prefix('[').and_then(|inside| split_at_close(inside, ']'));
        let assigned = after.is_some_and(|(_, after)| {
            let after = after.trim_start();
            after.starts_with("= ") || after.starts_with("+= ")
        });
        !before && assigned
    })
}

/// The text with every use of the bindings packed and unpacked.
fn rewrite_uses(text: &str, bindings: &[Binding<'_>]) -> String {
    let mut output = String::with_capacity(text.len() + text.len() / 4);
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if length > 0 {
            let (name, after) = rest.split_at(length);
            let binding = bindings.iter().find(|binding| binding.name == name && !output.ends_with('.'));
            let index = binding.zip(after.strip_prefix('[').and_then(|inside| split_at_close(inside, ']')));
            let Some((binding, (index, after))) = index else {
                output.push_str(name);
                rest = after;
                continue;
            };
            let index = rewrite_uses(index, bindings);
            let assigned = after.trim_start();
            if let Some(value) = assigned.strip_prefix("= ") {
                let (value, after) = split_at_close(value, ';').unwrap_or((value, ""));
                output.push_str(&binding.store(&index, &rewrite_uses(value, bindings)));
                rest = after;
            } else if let Some(value) = assigned.strip_prefix("+= ") {
                let (value, after) = split_at_close(value, ';').unwrap_or((value, ""));
                let sum = format!("{} + {}", binding.load(&index), rewrite_uses(value, bindings));
                output.push_str(&binding.store(&index, &sum));
                rest = after;
            } else {
                output.push_str(&binding.load(&index));
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
    use crate::shader::{Access, Family};

    fn variant(storage: StorageType, halves: Vec<(u32, HalfForm)>) -> Variant {
        Variant {
            storage,
            halves,
            access: Access::Read,
            in_place: None,
            family: Family::Workgroup,
            consts: Vec::new(),
            epilogue: Vec::new(),
        }
    }

    const TEXT: &str = "\
@group(0) @binding(0) var<storage, read> a: array<Storage4>;
@group(0) @binding(1) var<storage, read> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
c[i] = Storage4(Accum4(a[at[i] + 1u]) * 2.0);
c[(i)] += a[i]; let x = data[a[0][1]].c[0]; // a[0]
";

    #[test]
    fn vectors_are_words() {
        let expected = "\
@group(0) @binding(0) var<storage, read> a: array<vec2<u64>>;
@group(0) @binding(1) var<storage, read> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<vec2<u64>>;
c[i] = pack_words(Storage4(Accum4(unpack_words(a[at[i] + 1u])) * 2.0));
c[(i)] = pack_words(unpack_words(c[(i)]) + unpack_words(a[i])); let x = data[unpack_words(a[0])[1]].c[0]; // a[0]
";
        let words = variant(StorageType::F32Words, Vec::new());
        assert_eq!(rewrite(TEXT, &words), WORDS.to_owned() + expected);
        assert_eq!(rewrite(TEXT, &variant(StorageType::F32, Vec::new())), TEXT);
        assert_eq!(rewrite("let a = b[0];\n", &words), "let a = b[0];\n");
    }

    #[test]
    fn vectors_are_halves() {
        let expected = "\
@group(0) @binding(0) var<storage, read> a: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<vec2<u32>>;
c[i] = pack_bf16x4(Storage4(Accum4(vec4<f32>(a[at[i] + 1u])) * 2.0));
c[(i)] = pack_bf16x4(unpack_bf16x4(c[(i)]) + vec4<f32>(a[i])); let x = data[vec4<f32>(a[0])[1]].c[0]; // a[0]
";
        let halves = variant(StorageType::F32, vec![(0, HalfForm::NativeF16), (2, HalfForm::Bf16)]);
        assert_eq!(rewrite(TEXT, &halves), expected);
    }

    #[test]
    fn vectors_of_halves_are_words() {
        let text = "\
@group(0) @binding(0) var<storage, read_write> a: array<Storage4>;
a[i] = a[j];
";
        let expected = "\
@group(0) @binding(0) var<storage, read_write> a: array<u64>;
a[i] = join_word(pack_f16x4(unpack_f16x4(split_word(a[j]))));
";
        let halves = variant(StorageType::F32Words, vec![(0, HalfForm::F16)]);
        assert_eq!(rewrite(text, &halves), HALF_WORDS.to_owned() + expected);
    }

    #[test]
    fn single_elements_share_words() {
        let text = "\
alias Element = Storage;
@group(0) @binding(0) var<storage, read> a: array<Element>;
const PLACE = 1u;
@group(0) @binding(PLACE) var<storage, read_write> b: array<Accum>;
b[i + 1u] = a[i] * 2.0;
b[i] += 1.0;
";
        let expected = "\
alias Element = Storage;
@group(0) @binding(0) var<storage, read> a: array<u32>;
const PLACE = 1u;
@group(0) @binding(PLACE) var<storage, read_write> b: array<atomic<u32>>;
set_half_of_b(u32(i + 1u), half_of_a(u32(i)) * 2.0);
set_half_of_b(u32(i), half_of_b(u32(i)) + 1.0);
fn half_of_a(i: u32) -> f32 {
    return unpack_f16x2(a[i >> 1u])[i & 1u];
}
fn half_of_b(i: u32) -> f32 {
    return unpack_f16x2(atomicLoad(&b[i >> 1u]))[i & 1u];
}
fn set_half_of_b(i: u32, value: f32) {
    let changed = (atomicLoad(&b[i >> 1u]) ^ pack_f16x2(vec2<f32>(value))) & (0xffffu << (16u * (i & 1u)));
    atomicXor(&b[i >> 1u], changed);
}
";
        let halves = variant(StorageType::F32, vec![(0, HalfForm::F16), (1, HalfForm::F16)]);
        assert_eq!(rewrite(text, &halves), expected);
    }
}
