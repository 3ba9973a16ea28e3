//! `train --tui`: a full screen where there is a terminal, lines where there is none.

#[cfg(target_os = "linux")]
use std::io::{Read as _, Write as _};
#[cfg(target_os = "linux")]
use std::process::{Child, ChildStdout, Command, Stdio};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use crate::command::MODEL;
use crate::command::{Fixture, run, stdout};

/// Takes the terminal.
#[cfg(target_os = "linux")]
const ENTER: &str = "\u{1b}[?1049h";
/// Gives it back.
#[cfg(target_os = "linux")]
const LEAVE: &str = "\u{1b}[?1049l";
#[cfg(target_os = "linux")]
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// Begins to train on a terminal of 80 columns. The program that holds the terminal, and what came until the screen did.
#[cfg(target_os = "linux")]
fn begin(fixture: &Fixture, more: &[&str]) -> (Child, ChildStdout, Vec<u8>) {
    let model = fixture.path("tiny.toml");
    let args = fixture.train_args(&model, more).join(" ");
    let train = format!("stty cols 80 rows 24; exec {} {args} --tui", env!("CARGO_BIN_EXE_tightfit"));
    let mut script = Command::new("script");
    script.args(["-qec", &train, "/dev/null"]).env_remove("RUST_LOG").env("TERM", "xterm");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script runs");
    let mut stdout = script.stdout.take().expect("piped");
    let text = until(ENTER, &mut stdout);
    (script, stdout, text)
}

/// What comes, up to these words.
#[cfg(target_os = "linux")]
fn until(words: &str, stdout: &mut ChildStdout) -> Vec<u8> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(words.as_bytes()) && stdout.read(&mut byte).expect("readable") > 0 {
        text.push(byte[0]);
    }
    text
}

/// Trains on a terminal on which these keys are pressed. Its exit code, and what it wrote.
#[cfg(target_os = "linux")]
fn on_terminal(fixture: &Fixture, keys: &str, more: &[&str]) -> (Option<i32>, String) {
    // Before the screen, keys would be the terminal's own.
    let (mut script, mut stdout, mut text) = begin(fixture, more);
    let mut stdin = script.stdin.take().expect("piped");
    stdin.write_all(keys.as_bytes()).expect("written");
    stdout.read_to_end(&mut text).expect("readable");
    let status = script.wait().expect("ends");
    (status.code(), String::from_utf8(text).expect("UTF-8"))
}

/// What was on the screen, and what came after it.
#[cfg(target_os = "linux")]
fn parts(text: &str) -> (&str, &str) {
    let (before, screen) = text.split_once(ENTER).unwrap_or_else(|| panic!("no screen:\n{text}"));
    assert!(before.contains("planned peak"), "{before}");
    let (screen, after) = screen.split_once(LEAVE).unwrap_or_else(|| panic!("it is not given back:\n{text}"));
    assert!(!after.contains(ENTER) && !after.contains(LEAVE), "{after}");
    assert!(after.contains(SHOW_CURSOR), "{after}");
    (screen, after)
}

#[test]
fn without_a_terminal_there_are_lines() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let output = run(&fixture.train_args(&model, &["--steps", "6", "--tui"]));
    assert_eq!(output.status.code(), Some(0));
    let warning = String::from_utf8_lossy(&output.stderr);
    assert_eq!(warning.matches("--tui").count(), 1, "{warning}");
    let text = stdout(&output);
    for words in ["step 1/6  loss", "epoch 1  step 6", "measured peak = planned peak"] {
        assert!(text.contains(words) && !text.contains('\u{1b}'), "{words}\n{text}");
    }
    let refused = run(&fixture.train_args(&model, &["--steps", "6", "--tui", "--json"]));
    assert_eq!(refused.status.code(), Some(2));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("--tui") && error.contains("--json"), "{error}");
}

#[test]
fn a_learning_rate_that_changes_is_told() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let epochs = |more: &[&str]| -> Vec<String> {
        let output = run(&fixture.train_args(&model, &[&["--epochs", "3"], more].concat()));
        assert_eq!(output.status.code(), Some(0));
        stdout(&output).lines().filter(|line| line.starts_with("epoch ")).map(str::to_owned).collect()
    };
    let told = |line: &String| line.contains("  lr ");
    let (same, falling) = (epochs(&["--lr", "0.01"]), epochs(&["--lr", "0.01", "--schedule", "linear"]));
    assert!(same.len() == 3 && !same.iter().any(told), "{same:?}");
    assert!(falling.len() == 3 && falling.iter().all(told) && falling[0].contains("  lr 0.006667  "), "{falling:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_screen_is_given_back_before_the_summary() {
    let fixture = Fixture::new();
    let (code, text) = on_terminal(&fixture, "\t", &["--epochs", "2", "--budget", "1MiB"]);
    assert_eq!(code, Some(0), "{text}");
    let (screen, after) = parts(&text);
    assert!(screen.contains("memory of a step") && screen.contains("KiB"), "{screen}");
    // What was told meanwhile is kept.
    for words in ["epoch 1  step 6  loss", "epoch 2  step 12  loss", "measured peak = planned peak", "parameters "] {
        assert!(after.contains(words), "{words}\n{after}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn keys_and_errors_end_a_screen() {
    let fixture = Fixture::new();
    for key in ["q", "\u{3}"] {
        let (code, text) = on_terminal(&fixture, key, &["--epochs", "1000000"]);
        assert_eq!(code, Some(130), "{text}");
        assert!(parts(&text).1.contains("interrupted after step"), "{text}");
    }
    let hidden = "kind = \"linear\"\nout_features = 10\n\n[[layers]]\nkind = \"linear\"";
    fixture.write("tiny.toml", MODEL.replace("kind = \"linear\"", hidden).as_bytes());
    let (code, text) = on_terminal(&fixture, "", &["--epochs", "3", "--lr", "1e30"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(parts(&text).1.contains("error: "), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_is_closed_ends_training() {
    let fixture = Fixture::new();
    let weights = fixture.path("w.safetensors");
    let (mut script, mut stdout, _) =
        begin(&fixture, &["--epochs", "1000000", "--save", weights.to_str().expect("UTF-8")]);
    // It has made some steps.
    until("samples/s", &mut stdout);
    script.kill().expect("it is running");
    script.wait().expect("ends");
    let deadline = Instant::now() + Duration::from_secs(120);
    while !weights.exists() {
        assert!(Instant::now() < deadline, "training goes on, and what it learned is not saved");
        std::thread::sleep(Duration::from_millis(20));
    }
}
