//! README.md and docs/*.md show commands with what they print: each is run and compared. `TRYCMD=overwrite` writes what they
//! print into the documents.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::command::tightfit;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The documents with their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = vec![root().join("README.md"), root().join("ARCHITECTURE.md"), root().join("CONTRIBUTING.md")];
    let docs = fs::read_dir(root().join("docs")).expect("a folder").map(|entry| entry.expect("readable").path());
    paths.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("readable"))).collect()
}

/// Info strings and contents of a document's code blocks.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let content = lines.by_ref().take_while(|line| *line != "```");
            blocks.push((info, content.map(|line| line.to_owned() + "\n").collect()));
        }
    }
    blocks
}

#[test]
fn commands_print_what_the_documents_show() {
    // Plans need no device, and training shown here runs on the CPU.
    trycmd::TestCases::new()
        .case(root().join("README.md"))
        .case(root().join("docs").join("*.md"))
        .register_bin("tightfit", Path::new(env!("CARGO_BIN_EXE_tightfit")))
        .env("VK_DRIVER_FILES", "/nonexistent")
        .env("VK_ICD_FILENAMES", "/nonexistent")
        .env("RUST_LOG", "warn");
}

/// What the test above would pass over without a word.
#[test]
fn every_output_in_the_documents_belongs_to_a_command_that_is_run() {
    let mut run = 0;
    for (path, text) in documents() {
        for (info, content) in blocks(&text) {
            let shown = format!("{}: ```{info}\n{content}", path.display());
            assert!(
                ["console", "console,ignore", "sh", "toml", "text", "python"].contains(&info)
                    || info.starts_with("rust"),
                "what is this block? {shown}"
            );
            if info != "console" {
                continue;
            }
            assert!(content.starts_with("$ "), "an output without its command: {shown}");
            for command in content.lines().filter_map(|line| line.strip_prefix("$ ")) {
                assert!(
                    command.starts_with("tightfit ") && !command.contains(['|', '>']),
                    "not run: {command} in {shown}"
                );
                run += 1;
            }
        }
    }
    assert!(run >= 7, "only {run} commands");
}

/// It is read first, and in full: what does not fit is in `docs/`.
#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).expect("readable").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

/// The picture is the one that the command above it draws. With `TRYCMD=overwrite` it is drawn anew.
#[test]
fn the_picture_is_that_of_the_plan_beside_it() {
    let (picture, text) = (root().join("docs/mnist-unet.svg"), fs::read_to_string(root().join("docs/budgets.md")));
    let text = text.expect("readable");
    let command = text.lines().find_map(|line| line.strip_prefix("$ tightfit plan mnist-unet ")).expect("the plan");
    let dir = TempDir::new().expect("a temporary folder");
    let drawn = dir.path().join("drawn.svg");
    let mut draw = tightfit();
    draw.args(["plan", "mnist-unet"]).args(command.split(' ')).arg("--svg").arg(&drawn);
    assert!(draw.output().expect("the binary runs").status.success());
    let drawn = fs::read_to_string(&drawn).expect("a picture");
    if std::env::var_os("TRYCMD").is_some_and(|mode| mode == "overwrite") {
        return fs::write(&picture, drawn).expect("writable");
    }
    let shown = fs::read_to_string(&picture).expect("readable");
    assert!(shown == drawn, "{} is another picture: run this test with TRYCMD=overwrite", picture.display());
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut links = 0;
    for (path, text) in documents() {
        let inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        let defined = text.lines().filter_map(|line| Some(line.strip_prefix('[')?.split_once("]: ")?.1));
        for target in inline.chain(defined).filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            assert!(file.exists(), "{}: there is no {target}", path.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&file).expect("readable");
                assert!(anchors(&text).contains(&heading.to_owned()), "{}: no heading {target}", path.display());
            }
            links += 1;
        }
    }
    assert!(links > 20, "only {links} links");
}

/// Files that the documents name, as in `src/ops/mod.rs`.
#[test]
fn files_that_documents_name_are_there() {
    let mut files = 0;
    for (path, text) in documents().into_iter().filter(|(path, _)| path.parent() == Some(root())) {
        for span in text.split('`').skip(1).step_by(2) {
            let is_path = ["src/", "shaders/", "tests/", "docs/", "examples/", "scripts/"]
                .iter()
                .any(|dir| span.starts_with(dir));
            // Patterns stand for several, and a script has arguments.
            if is_path && !span.contains(['<', '{', '*']) {
                let file = span.split(' ').next().expect("a path");
                assert!(root().join(file).exists(), "{}: there is no {file}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 30, "only {files} files");
}

/// Headings as links name them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    headings.map(|text| text.to_lowercase().replace(' ', "-").chars().filter(|&c| kept(c)).collect()).collect()
}
