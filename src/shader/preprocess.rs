//! The preprocessor: imports, conditions, unrolling. Everything else in a file is plain WGSL and passes through.
//!
//! - `#import "shared/x.wgsl"` puts a shared file here, once per module.
//! - `#ifdef NAME` or `#ifndef NAME`, `#else`, `#endif` keep or drop lines; they nest. Defined are `ENTRY_<entry point>`,
//!   `SUBGROUPS`, `READ_WRITE`, `IN_PLACE`, `IN_PLACE_<i>` as the variant has them, and its constants.
//! - `#for i in 0..N` … `#end` repeats lines with `#i` replaced by the number; `N` is a literal or a constant of the
//!   prelude. Loops nest under different names.
//! - `#(i * N + 2)` is replaced by its value, a whole number made of loop variables, literals and constants of the prelude
//!   with `+ - * / %` and brackets: for names that are computed, and indices.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::ShaderError;

/// The most lines that a loop may unroll to: a mistyped bound must not fill the memory.
const MAX_ITERATIONS: u32 = 4096;

/// What conditions and loop bounds may name.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names for `#ifdef` and `#ifndef`.
    pub(super) defines: BTreeSet<String>,
    /// Constants of the prelude.
    pub(super) consts: BTreeMap<String, u32>,
}

/// Expands files, each once, into one text of plain WGSL. `load` finds the text of a file.
pub(super) fn preprocess(
    paths: &[&str],
    names: &Names,
    load: &dyn Fn(&str) -> Option<&'static str>,
) -> Result<String, ShaderError> {
    let mut state = Expansion {
        names,
        load,
        output: String::new(),
        imported: BTreeSet::new(),
        open: Vec::new(),
        bound: Vec::new(),
    };
    for path in paths {
        if state.imported.insert((*path).to_owned()) {
            state.file(path)?;
        }
    }
    Ok(state.output)
}

struct Expansion<'a> {
    names: &'a Names,
    load: &'a dyn Fn(&str) -> Option<&'static str>,
    output: String,
    imported: BTreeSet<String>,
    /// Files being expanded, the innermost last.
    open: Vec<String>,
    /// Loop variables and their values, the innermost last.
    bound: Vec<(String, u32)>,
}

/// A directive at the start of a line. Other lines that start with `#` are text: `#i` may stand there in a loop.
enum Directive<'a> {
    Import(&'a str),
    /// The name, and whether it must be defined: `#ifdef`, `#ifndef`.
    If(&'a str, bool),
    Else,
    Endif,
    For(&'a str),
    End,
}

fn directive(line: &str) -> Option<Directive<'_>> {
    let (word, rest) = line.trim().strip_prefix('#').map(|line| line.split_once(' ').unwrap_or((line, "")))?;
    let rest = rest.trim();
    Some(match word {
        "import" => Directive::Import(rest),
        "ifdef" => Directive::If(rest, true),
        "ifndef" => Directive::If(rest, false),
        "else" => Directive::Else,
        "endif" => Directive::Endif,
        "for" => Directive::For(rest),
        "end" => Directive::End,
        _ => return None,
    })
}

impl Expansion<'_> {
    fn file(&mut self, path: &str) -> Result<(), ShaderError> {
        let text = (self.load)(path).ok_or_else(|| ShaderError::Missing { path: path.to_owned() })?;
        let lines: Vec<_> = text.lines().enumerate().map(|(i, line)| (i + 1, line)).collect();
        self.open.push(path.to_owned());
        self.block(&lines)?;
        self.open.pop();
        Ok(())
    }

    /// Expands lines in which every block that opens also closes.
    fn block(&mut self, lines: &[(usize, &str)]) -> Result<(), ShaderError> {
        let mut at = 0;
        while at < lines.len() {
            let (number, line) = lines[at];
            match directive(line) {
                None => {
                    self.text(number, line)?;
                    at += 1;
                }
                Some(Directive::Import(rest)) => {
                    self.import(number, rest)?;
                    at += 1;
                }
                Some(Directive::If(name, defined)) => {
                    if !is_identifier(name) {
                        let word = if defined { "#ifdef" } else { "#ifndef" };
                        return Err(self.error(number, format!("`{word}` needs one name, found `{name}`")));
                    }
                    let (middle, end) = self.close(lines, at)?;
                    let (then, other) = (&lines[at + 1..middle.unwrap_or(end)], middle.map(|m| &lines[m + 1..end]));
                    if self.names.defines.contains(name) == defined {
                        self.block(then)?;
                    } else if let Some(other) = other {
                        self.block(other)?;
                    }
                    at = end + 1;
                }
                Some(Directive::For(rest)) => {
                    let (name, range) = self.range(number, rest)?;
                    let (_, end) = self.close(lines, at)?;
                    for value in range {
                        self.bound.push((name.to_owned(), value));
                        self.block(&lines[at + 1..end])?;
                        self.bound.pop();
                    }
                    at = end + 1;
                }
                Some(Directive::Else) => return Err(self.error(number, "`#else` without a condition")),
                Some(Directive::Endif) => return Err(self.error(number, "`#endif` without a condition")),
                Some(Directive::End) => return Err(self.error(number, "`#end` without `#for`")),
            }
        }
        Ok(())
    }

    /// Finds where the block that opens at `lines[start]` has its `#else` and where it closes.
    fn close(&self, lines: &[(usize, &str)], start: usize) -> Result<(Option<usize>, usize), ShaderError> {
        // One entry per open block: is it a loop, and has it an `#else` yet?
        let mut open: Vec<(bool, Option<usize>)> = Vec::new();
        for (at, &(number, line)) in lines.iter().enumerate().skip(start) {
            match directive(line) {
                Some(Directive::If(..)) => open.push((false, None)),
                Some(Directive::For(_)) => open.push((true, None)),
                Some(Directive::Else) => match open.last_mut() {
                    Some((false, middle @ None)) => *middle = Some(at),
                    Some((false, Some(_))) => return Err(self.error(number, "a second `#else` for one condition")),
                    _ => return Err(self.error(number, "`#else` inside `#for` without a condition")),
                },
                Some(closing @ (Directive::Endif | Directive::End)) => {
                    let ends_loop = matches!(closing, Directive::End);
                    let Some((is_loop, middle)) = open.pop() else { break };
                    if is_loop != ends_loop {
                        let reason = if ends_loop { "`#end` closes a condition" } else { "`#endif` closes a loop" };
                        return Err(self.error(number, reason));
                    }
                    if open.is_empty() {
                        return Ok((middle, at));
                    }
                }
                _ => {}
            }
        }
        Err(self.error(lines[start].0, "this block is not closed"))
    }

    fn import(&mut self, number: usize, rest: &str) -> Result<(), ShaderError> {
        let path = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let Some(path) = path.filter(|path| path.starts_with("shared/")) else {
            return Err(self.error(number, format!("`#import` needs \"shared/<file>.wgsl\", found `{rest}`")));
        };
        if !self.bound.is_empty() {
            return Err(self.error(number, "`#import` inside `#for`"));
        }
        if self.open.iter().any(|open| open == path) {
            return Err(self.error(number, format!("`{path}` imports itself through {}", self.open.join(", "))));
        }
        if (self.load)(path).is_none() {
            return Err(self.error(number, format!("`{path}` does not exist")));
        }
        if self.imported.insert(path.to_owned()) { self.file(path) } else { Ok(()) }
    }

    /// Parses `i in 0..N`.
    fn range<'t>(&self, number: usize, rest: &'t str) -> Result<(&'t str, std::ops::Range<u32>), ShaderError> {
        let parts = rest.split_once(" in ").and_then(|(name, range)| {
            let (start, end) = range.split_once("..")?;
            Some((name.trim(), start.trim(), end.trim()))
        });
        let Some((name, start, end)) = parts.filter(|(name, ..)| is_identifier(name)) else {
            return Err(self.error(number, format!("`#for` needs `name in first..end`, found `{rest}`")));
        };
        if self.bound.iter().any(|(bound, _)| bound == name) {
            return Err(self.error(number, format!("`{name}` is the name of an outer loop too")));
        }
        let range = self.bound_value(number, start)?..self.bound_value(number, end)?;
        if range.len() as u64 > u64::from(MAX_ITERATIONS) {
            return Err(self.error(number, format!("{} repetitions are more than {MAX_ITERATIONS}", range.len())));
        }
        Ok((name, range))
    }

    fn bound_value(&self, number: usize, word: &str) -> Result<u32, ShaderError> {
        let literal = word.strip_suffix('u').unwrap_or(word).parse().ok();
        literal
            .or_else(|| self.names.consts.get(word).copied())
            .ok_or_else(|| self.error(number, format!("`{word}` is neither a number nor a constant of the prelude")))
    }

    /// Copies a line, with loop variables replaced.
    fn text(&mut self, number: usize, line: &str) -> Result<(), ShaderError> {
        let (code, comment) = line.split_at(line.find("//").unwrap_or(line.len()));
        let mut rest = code;
        while let Some(at) = rest.find('#') {
            let (before, after) = (&rest[..at], &rest[at + 1..]);
            if after.starts_with('(') {
                let (value, end) = self.expression(number, after)?;
                self.output.push_str(before);
                self.output.push_str(&value.to_string());
                rest = end;
                continue;
            }
            // The longest name wins, so `#ii` is never taken for `#i`.
            let found = self.bound.iter().filter(|(name, _)| after.starts_with(name.as_str()));
            let Some((name, value)) = found.max_by_key(|(name, _)| name.len()) else {
                let word: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                return Err(self.error(number, format!("`#{word}` is neither a directive nor a loop variable")));
            };
            self.output.push_str(before);
            self.output.push_str(&value.to_string());
            rest = &after[name.len()..];
        }
        self.output.push_str(rest);
        self.output.push_str(comment);
        self.output.push('\n');
        Ok(())
    }

    /// The value of an expression in brackets at the start of `text`, and what follows it.
    fn expression<'t>(&self, number: usize, text: &'t str) -> Result<(u32, &'t str), ShaderError> {
        let names = |name: &str| {
            let bound = self.bound.iter().find(|(bound, _)| bound == name).map(|(_, value)| *value);
            bound.or_else(|| self.names.consts.get(name).copied())
        };
        let mut parser = Parser { rest: text, names: &names };
        let value = parser.factor().map_err(|reason| self.error(number, format!("in `#{text}`: {reason}")))?;
        Ok((value, parser.rest))
    }

    fn error(&self, line: usize, reason: impl Into<String>) -> ShaderError {
        let path = self.open.last().cloned().unwrap_or_default();
        ShaderError::Directive { path, line, reason: reason.into() }
    }
}

/// Evaluates whole numbers from the start of a text on.
struct Parser<'t, 'n> {
    rest: &'t str,
    names: &'n dyn Fn(&str) -> Option<u32>,
}

impl Parser<'_, '_> {
    fn next(&mut self, wanted: &[char]) -> Option<char> {
        self.rest = self.rest.trim_start();
        let found = self.rest.chars().next().filter(|c| wanted.contains(c))?;
        self.rest = &self.rest[found.len_utf8()..];
        Some(found)
    }

    fn sum(&mut self) -> Result<u32, String> {
        let mut value = self.product()?;
        while let Some(operator) = self.next(&['+', '-']) {
            let other = self.product()?;
            let result = if operator == '+' { value.checked_add(other) } else { value.checked_sub(other) };
            value = result.ok_or_else(|| format!("{value} {operator} {other} is not a whole number of 32 bits"))?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<u32, String> {
        let mut value = self.factor()?;
        while let Some(operator) = self.next(&['*', '/', '%']) {
            let other = self.factor()?;
            let result = match operator {
                '*' => value.checked_mul(other),
                '/' => value.checked_div(other),
                _ => value.checked_rem(other),
            };
            value = result.ok_or_else(|| format!("{value} {operator} {other} is not a whole number of 32 bits"))?;
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<u32, String> {
        if self.next(&['(']).is_some() {
            let value = self.sum()?;
            return self.next(&[')']).map(|_| value).ok_or_else(|| "a bracket is not closed".to_owned());
        }
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.rest = &self.rest[end..];
        let literal = word.parse().ok();
        literal
            .or_else(|| (self.names)(word))
            .ok_or_else(|| format!("`{word}` is neither a number nor a name with a value"))
    }
}

pub(super) fn is_identifier(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
#[path = "preprocess_tests.rs"]
mod tests;
