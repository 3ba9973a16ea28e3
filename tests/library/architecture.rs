//! Holds the design's rules on who may know whom. ARCHITECTURE.md explains them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each module may import, besides itself, `error` and `tensor`.
const MODULES: [(&str, &[&str]); 18] = [
    ("words", &[]),
    ("svg", &[]),
    ("error", &["words"]),
    ("tensor", &["words"]),
    ("files", &[]),
    ("shader", &[]),
    ("native", &[]),
    ("ops", &["native", "shader"]),
    ("graph", &["ops"]),
    ("autodiff", &["graph", "ops"]),
    ("plan", &["graph", "ops", "svg"]),
    ("device", &["shader"]),
    ("exec", &["plan", "device", "native", "ops", "shader", "graph"]),
    ("nn", &["graph", "ops"]),
    ("models", &["nn"]),
    ("data", &["files"]),
    (
        "train",
        &["autodiff", "data", "device", "exec", "files", "graph", "models", "nn", "ops", "plan", "shader", "svg"],
    ),
    ("interop", &["files", "graph", "nn", "ops", "train"]),
];

/// Macros of the crate's root, which belong to no module.
const ROOT_MACROS: [&str; 2] = ["params", "twin"];

const MAX_LINES: usize = 500;

/// A source file without comments and test modules.
struct Source {
    path: String,
    module: String,
    code: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `dir` with this extension, relative to the crate's root.
fn files(dir: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(dir)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path.strip_prefix(root()).expect("below the root").to_owned());
            }
        }
    }
    found.sort();
    found
}

fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().expect("a file name").to_string_lossy();
    stem == "tests" || stem == "testing" || stem.ends_with("_tests")
}

/// The library's sources.
fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for path in files("src", "rs").into_iter().filter(|path| !is_test_file(path)) {
        let text = fs::read_to_string(root().join(&path)).expect("readable file");
        let first = path.components().nth(1).expect("below src").as_os_str().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs").to_owned();
        sources.push(Source { path: path.display().to_string(), module, code: code(&text) });
    }
    sources
}

fn code(text: &str) -> String {
    // Test modules stand at the end of a file.
    let text = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]);
    let lines = text.lines().map(|line| line.find("//").map_or(line, |start| &line[..start]));
    lines.collect::<Vec<_>>().join("\n")
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// First names of all paths that begin with `crate::`, groups in braces included.
fn crate_paths(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(identifier(rest));
            continue;
        };
        let mut depth = 0;
        let mut expect_name = true;
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => expect_name = true,
                c if expect_name && c.is_alphabetic() => {
                    names.insert(identifier(&group[i..]));
                    expect_name = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// Whether `word` stands in the code as a name of its own.
fn mentions(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_part(before) && !is_part(after)
    })
}

fn report(breaches: &[String]) {
    assert!(breaches.is_empty(), "{} breach(es):\n  {}", breaches.len(), breaches.join("\n  "));
}

#[test]
fn modules_import_only_what_the_design_allows() {
    let mut breaches = Vec::new();
    for source in sources() {
        let own = source.module.as_str();
        if ["lib", "command", "testing"].contains(&own) {
            continue;
        }
        let Some((_, allowed)) = MODULES.iter().find(|(module, _)| *module == own) else {
            // The command line and the binary are users of the library.
            if !["cli", "bin"].contains(&own) {
                breaches.push(format!("{}: `{own}` is not a module of the design", source.path));
            } else if source.code.contains("crate::") {
                breaches.push(format!("{}: must use the public API, `tightfit::…`", source.path));
            }
            continue;
        };
        for name in crate_paths(&source.code) {
            let is_free = name == own || name == "error" || name == "tensor" || ROOT_MACROS.contains(&name);
            if !is_free && !allowed.contains(&name) {
                breaches.push(format!("{}: `{own}` may not import `{name}`", source.path));
            }
        }
    }
    report(&breaches);
}

#[test]
fn only_device_and_exec_use_wgpu_and_only_shader_uses_naga() {
    let mut breaches = Vec::new();
    for source in sources() {
        for (library, modules) in [("wgpu::", ["device", "exec"]), ("naga::", ["shader", "shader"])] {
            if source.code.contains(library) && !modules.contains(&source.module.as_str()) {
                breaches.push(format!("{}: uses {library}", source.path));
            }
        }
    }
    report(&breaches);
}

#[test]
fn the_planner_is_pure() {
    let impure = ["wgpu", "rand", "rand_chacha", "Instant", "SystemTime", "HashMap", "HashSet", "println", "eprintln"];
    let modules = ["std::time", "std::fs", "std::env", "std::io", "std::net", "std::thread", "std::process"];
    let mut breaches = Vec::new();
    for source in sources().iter().filter(|source| source.module == "plan") {
        for word in impure.iter().filter(|word| mentions(&source.code, word)) {
            breaches.push(format!("{}: the planner may not use {word}", source.path));
        }
        for module in modules.iter().filter(|module| source.code.contains(**module)) {
            breaches.push(format!("{}: the planner may not use {module}", source.path));
        }
    }
    report(&breaches);
}

#[test]
fn examples_use_the_public_api_and_stay_short() {
    let mut breaches = Vec::new();
    for path in files("examples", "rs") {
        let text = fs::read_to_string(root().join(&path)).expect("readable file");
        // Others are modules of these.
        let is_program = text.contains("fn main()");
        if is_program && text.lines().count() >= 80 {
            breaches.push(format!("{}: {} lines, must be under 80", path.display(), text.lines().count()));
        }
    }
    report(&breaches);
}

#[test]
fn files_stay_short() {
    let mut breaches = Vec::new();
    for path in files("src", "rs").into_iter().chain(files("shaders", "wgsl")) {
        let lines = fs::read_to_string(root().join(&path)).expect("readable file").lines().count();
        if lines > MAX_LINES {
            breaches.push(format!("{}: {lines} lines, at most {MAX_LINES}", path.display()));
        }
    }
    report(&breaches);
}

#[test]
fn the_scanner_sees_every_form_of_import() {
    let code = code("use crate::{ops::{Op, Real}, graph::Graph};\nlet x = crate::plan::y(); // crate::device\n");
    assert_eq!(crate_paths(&code).into_iter().collect::<Vec<_>>(), ["graph", "ops", "plan"]);
    assert!(mentions("use rand::Rng;", "rand") && !mentions("let operand = brand_new;", "rand"));
}
