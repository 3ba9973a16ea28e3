//! The binary, and a folder of files to run it on.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

pub const MODEL: &str = r#"
name = "tiny"
input = [1, 28, 28]

[optimizer]
kind = "sgd"
lr = 0.1

[[layers]]
kind = "avg_pool2d"
kernel = 4

[[layers]]
kind = "flatten"

[[layers]]
kind = "linear"
out_features = 10
"#;

/// The binary, seeing no Vulkan driver.
pub fn tightfit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightfit"));
    command.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent").env_remove("RUST_LOG");
    command
}

pub fn run(args: &[&str]) -> Output {
    let output = tightfit().args(args).output().expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
    output
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The objects of a `--json` run: every line of standard output must be one.
pub fn objects(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

pub fn last(output: &Output) -> Value {
    objects(output).pop().expect("at least one object")
}

/// Keys of all objects in a value.
fn keys<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        Value::Object(items) => {
            for (key, item) in items {
                found.push(key);
                keys(item, found);
            }
        }
        _ => {}
    }
}

/// Checks that docs/json.md says what each key of an object means, in these sections.
pub fn assert_documented(object: &Value, sections: &[&str]) {
    let documentation = include_str!("../../docs/json.md");
    let section = |title: &&str| {
        let (_, after) = documentation.split_once(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("{title}"));
        after.split("\n## ").next().unwrap_or_default()
    };
    let text: String = sections.iter().map(section).collect();
    let mut found = Vec::new();
    keys(object, &mut found);
    assert!(!found.is_empty(), "{object}");
    for key in found {
        assert!(text.contains(&format!("`{key}`")), "`{key}` in {sections:?}");
    }
}

/// Runs twice, plain and with `--json`; checks the exit code and that the error is one sentence. Returns it.
pub fn refused(args: &[&str], exit_code: i32) -> String {
    let output = run(args);
    let stderr = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {stderr}");
    let message = stderr.strip_prefix("error: ").unwrap_or_else(|| panic!("{args:?}: {stderr}")).trim_end();
    assert_eq!(message.lines().count(), 1, "{args:?}: {stderr}");

    let with_json = run(&[args, &["--json"]].concat());
    assert_eq!(with_json.status.code(), Some(exit_code), "{args:?}");
    let object = last(&with_json);
    assert_eq!(object["error"], message, "{args:?}");
    assert_eq!(object["exit_code"], exit_code, "{args:?}");
    message.to_owned()
}

/// A folder with a small set in MNIST's format and a model file.
pub struct Fixture {
    pub dir: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let fixture = Fixture { dir: TempDir::new().expect("a temporary folder") };
        for (name, count) in [("train", 60), ("t10k", 30)] {
            let labels: Vec<u8> = (0..count).map(|i| i % 10).collect();
            // A bright block whose place tells the class.
            let images = labels.iter().flat_map(|&label| {
                (0..784).map(move |i| if i / 28 / 8 * 4 + i % 28 / 8 == usize::from(label) { 250 } else { 5 })
            });
            fixture.write(&format!("{name}-labels-idx1-ubyte"), &idx(&[u32::from(count)], labels.clone()));
            fixture.write(&format!("{name}-images-idx3-ubyte"), &idx(&[u32::from(count), 28, 28], images.collect()));
        }
        fixture.write("tiny.toml", MODEL.as_bytes());
        fixture
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).expect("writable");
    }

    pub fn train_args<'a>(&'a self, model: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
        let text = |path: &'a Path| path.to_str().expect("UTF-8");
        let mut args = vec!["train", text(model), "--data", text(self.dir.path()), "--device", "cpu", "--batch", "10"];
        args.extend(more);
        args
    }
}

pub fn idx(dims: &[u32], data: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|dim| dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}
