//! Screens of made-up trainings.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::Color;
use tightfit::plan::{MemoryMoment, MicroBatchMemory};
use tightfit::train::{EpochReport, Evaluation, History, StepReport};

use super::super::notes::Stream;
use super::memory::EIGHTHS;
use super::state::{Memory, State};
use super::view;

const MIB: u64 = 1 << 20;
const EPOCH: u64 = 100;

fn micro_batch(samples: usize, times: usize, commands: u64) -> MicroBatchMemory {
    let moment = |at: u64| {
        let (action, depth) = match at {
            0 => ("upload", 0),
            at if at * 2 < commands => ("forward", at),
            at => ("backward", commands - at),
        };
        MemoryMoment {
            action,
            input_bytes: MIB,
            activation_bytes: depth * 12 * MIB / commands,
            gradient_bytes: if action == "backward" { MIB } else { 0 },
            workspace_bytes: MIB / 2,
            fetched_bytes: 0,
        }
    };
    MicroBatchMemory { samples, times, moments: (0..commands).map(moment).collect() }
}

pub(super) fn state() -> State {
    let fixed = [("parameters", 2), ("buffers", 0), ("optimizer state", 4), ("accumulators", 2), ("other", 1)];
    let memory = Memory {
        budget_bytes: Some(20 * MIB),
        peak_bytes: 18 * MIB,
        micro_batches: vec![32, 32, 8],
        levers: vec!["3 recomputed".to_owned()],
        fixed: fixed.map(|(name, mib)| (name.to_owned(), mib * MIB)).to_vec(),
        of_step: vec![micro_batch(32, 2, 60), micro_batch(8, 1, 80)],
    };
    State::new("mnist-cnn", "llvmpipe (LLVM 15.0.6, 256 bits)", memory, History::default())
}

pub(super) fn step(step: u64, loss: f32) -> StepReport {
    StepReport {
        step,
        epoch: (step - 1) / EPOCH + 1,
        steps_per_epoch: EPOCH,
        total_steps: 3 * EPOCH,
        loss,
        accuracy: Some(1.0 - loss / 3.0),
        grad_norm: Some(loss * 2.0),
        loss_scale: None,
        skipped: false,
        skipped_steps: None,
        lr: 0.001,
        samples: 72,
        step_ms: 12.0,
    }
}

pub(super) fn epoch(epoch: u64, val_loss: f64) -> EpochReport {
    let evaluation = Evaluation { loss: val_loss, accuracy: Some(0.9), samples: 500, metrics: Vec::new() };
    EpochReport {
        epoch,
        step: epoch * EPOCH,
        lr: 0.001,
        train_loss: 0.5,
        train_accuracy: Some(0.8),
        skipped_steps: None,
        validation: Some(evaluation),
    }
}

/// A training of so many steps.
pub(super) fn trained(steps: u64) -> State {
    let mut state = state();
    for number in 1..=steps {
        let noise = 1.0 + 0.2 * (number as f32 * 1.7).sin();
        state.step(&step(number, 2.3 * (-(number as f32) / 60.0).exp() * noise + 0.01));
        if number % EPOCH == 0 {
            state.epoch(&epoch(number / EPOCH, 2.0 / number as f64));
        }
    }
    state
}

fn log() -> Vec<(Stream, String)> {
    vec![
        (Stream::Out, "epoch 1  step 100  loss 0.5".to_owned()),
        (Stream::Err, "warning: \u{1b}[2Jno checkpoint of step 3: the disk is full ✓".to_owned()),
    ]
}

fn drawn(state: &State, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| view::draw(frame, state, &log(), Duration::from_secs(3_725))).expect("drawn");
    terminal
}

fn text(state: &State, width: u16, height: u16) -> String {
    let terminal = drawn(state, width, height);
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(width));
    rows.map(|row| row.iter().map(Cell::symbol).collect::<String>() + "\n").collect()
}

/// Trainings whose values ask for trouble.
fn odd() -> Vec<State> {
    let mut states = vec![state(), trained(1), trained(2), trained(250)];
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45];
    for value in values {
        let mut alone = state();
        alone.step(&step(1, value));
        alone.step(&StepReport { lr: f64::NAN, step_ms: f64::NAN, ..step(2, value) });
        alone.epoch(&epoch(1, value.into()));
        states.push(alone);
    }
    let mut all = state();
    for (number, value) in (1..).zip(values.into_iter().cycle().take(50)) {
        all.step(&step(number, value));
    }
    states.push(all);
    // Epochs of nothing, steps beyond all, no commands, no bytes.
    let mut nothing = state();
    nothing.step(&StepReport { steps_per_epoch: 0, total_steps: 0, step_ms: 1e300, samples: 0, ..step(u64::MAX, 1.0) });
    nothing.memory.budget_bytes = Some(0);
    nothing.memory.peak_bytes = 0;
    nothing.memory.of_step =
        vec![micro_batch(1, 1, 1), MicroBatchMemory { moments: Vec::new(), ..micro_batch(1, 1, 1) }];
    states.push(nothing);
    let mut huge = state();
    huge.memory.peak_bytes = u64::MAX;
    huge.memory.budget_bytes = None;
    huge.memory.fixed.iter_mut().for_each(|(_, bytes)| *bytes = u64::MAX);
    huge.memory.of_step = (0..40).map(|at| micro_batch(at, 3, 7)).collect();
    states.push(huge);
    states
}

#[test]
fn no_screen_is_too_small_and_no_value_too_odd() {
    let sizes =
        [(1, 1), (1, 60), (2, 2), (5, 3), (9, 9), (15, 24), (20, 6), (33, 12), (64, 16), (80, 24), (200, 1), (200, 60)];
    for mut state in odd() {
        for (width, height) in sizes {
            for chosen in [0, 5, i64::MIN] {
                state.chosen = chosen;
                drawn(&state, width, height);
            }
        }
    }
    // All sizes, of one.
    let state = trained(150);
    for width in (1..=90).step_by(3) {
        for height in (1..=40).step_by(2) {
            drawn(&state, width, height);
        }
    }
}

#[test]
fn a_screen_has_what_there_is_to_know() {
    let screen = text(&trained(250), 80, 24);
    for words in [
        "mnist-cnn  llvmpipe",
        "1:02:05",
        "peak 18.0 MiB of 20.0 MiB",
        "2 × 32 + 1 × 8",
        "3 recomputed",
        "lr 0.001",
        "loss (log)  train",
        "val 0.01",
        "accuracy  train",
        "log",
        "3 of 3  step 50 of 100",
        "250 of 300",
        "0:00 left",
        "6000 samples/s",
        "12.0 ms/step",
        "memory of a step",
        "2 × 32 samples",
        "forward",
        "backward",
        "18.0 MiB",
        "■ optimizer state",
        "warning: ",
        "q end after this step",
        "tab another curve",
    ] {
        assert!(screen.contains(words), "{words}\n{screen}");
    }
    assert!(!screen.contains('\u{1b}'), "no log moves the cursor");
    let small = text(&trained(250), 20, 6);
    for words in ["mnist-cnn", "loss", "steps", "250"] {
        assert!(small.contains(words), "{words}\n{small}");
    }
    assert!(text(&state(), 80, 24).contains("waiting for the first step"));
    let mut state = trained(10);
    state.step(&step(11, f32::NAN));
    state.is_ending = true;
    let screen = text(&state, 80, 24);
    assert!(screen.contains("loss NaN") && screen.contains("ending after this step"), "{screen}");
}

#[test]
fn nothing_is_cut_in_two() {
    let state = trained(250);
    let whole = text(&state, 300, 24);
    let values: Vec<_> = whole.lines().nth(2).expect("a line").trim_end().split("  ").map(str::to_owned).collect();
    assert_eq!(values.len(), 6, "{values:?}");
    for width in 1..120 {
        let screen = text(&state, width, 24);
        let shown = screen.lines().nth(2).expect("a line").trim_end();
        assert!(shown.split("  ").all(|item| item.is_empty() || values.iter().any(|value| value == item)), "{shown}");
    }
    assert!(text(&state, 40, 24).contains("peak 18.0/20.0 MiB"), "the peak matters most");
    let told = "epoch 6  step 936  val_loss 0.2188  val_accuracy 94.15%";
    for (width, words) in [
        (60, told),
        (54, "epoch 6  step 936  val_loss 0.2188…"),
        (35, "epoch 6  step 936  val_loss 0.2188…"),
        (34, "epoch 6  step 936…"),
        (8, "epoch 6…"),
        (7, "epoch…"),
        (1, "…"),
        (0, ""),
    ] {
        assert_eq!(view::shortened(told, width), words, "{width}");
    }
    assert_eq!(view::shortened("llvmpipe (LLVM 15.0.6, 256 bits)", 20), "llvmpipe (LLVM…");
    assert_eq!(view::shortened("a/long/path/without/end", 10), "a/long/pa…");
    assert_eq!(view::shortened("模型模型", 5), "模型…");
}

#[test]
fn phases_have_their_names() {
    let moments = |actions: &[(&'static str, usize)]| {
        let moment = |action| MemoryMoment { action, ..micro_batch(1, 1, 1).moments[0] };
        let all = actions.iter().flat_map(|&(action, times)| std::iter::repeat_n(moment(action), times));
        MicroBatchMemory { samples: 1, times: 1, moments: all.collect() }
    };
    let mut state = trained(3);
    // Commands of other kinds lie between those of forward and backward, and update is short.
    let forward = [("upload", 1), ("forward", 1), ("offload", 1), ("forward", 2), ("offload", 2)];
    let backward = [("fetch", 2), ("backward", 2), ("recompute", 2), ("backward", 40), ("update", 1)];
    state.memory.of_step = vec![moments(&[forward, backward].concat())];
    let screen = text(&state, 80, 24);
    let line = screen.lines().find(|line| line.contains("backward")).expect("names");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["forward", "backward", "update"], "{screen}");
    assert!(screen.contains("1 sample ─"), "{screen}");
}

#[test]
fn a_training_that_goes_on_has_its_curves_from_the_beginning() {
    let before = trained(250);
    let memory = state().memory;
    let mut state = State::new("m", "d", memory, before.history.clone());
    let screen = text(&state, 80, 24);
    assert!(screen.contains("train 0.0") && screen.contains("val 0.01"), "{screen}");
    state.step(&step(251, 0.04));
    let screen = text(&state, 80, 24);
    let axis = screen.lines().find(|line| line.trim_end().ends_with("251")).expect("an axis");
    assert!(axis.split_whitespace().next() == Some("1"), "{screen}");
}

#[test]
fn keys_choose_a_curve() {
    let mut state = trained(250);
    assert_eq!(state.curves(), ["loss", "accuracy", "lr", "grad_norm"]);
    let titles = ["accuracy  train", "learning rate  train", "gradient norm (log)  train"];
    for (chosen, title) in (0..).zip(titles) {
        state.chosen = chosen;
        let screen = text(&state, 80, 24);
        assert!(screen.contains("loss (log)  train") && screen.contains(title), "{title}\n{screen}");
    }
    state.chosen = -1;
    assert!(text(&state, 80, 24).contains("gradient norm (log)  train"));
    assert!(text(&state, 40, 24).contains("gradient norm (log)  train"), "one curve, where there is room for one");
}

#[test]
fn skipped_steps_are_counted() {
    let mut state = trained(1);
    assert!(!text(&state, 140, 24).contains("skipped"));
    state.step(&StepReport { loss_scale: Some(32_768.0), skipped: true, skipped_steps: Some(2), ..step(2, 0.5) });
    let screen = text(&state, 140, 24);
    assert!(screen.contains("loss scale 32768") && screen.contains("skipped 2"), "{screen}");
    assert_eq!(state.curves()[4..], ["loss_scale", "skipped_steps"]);
}

#[test]
fn the_picture_of_memory_has_the_bytes() {
    let terminal = drawn(&trained(1), 140, 40);
    let cells = terminal.backend().buffer().content();
    // Of the picture.
    let eighths = |cell: &Cell| EIGHTHS.iter().position(|block| *block == cell.symbol());
    let colored = |color: Color| -> usize {
        let filled = cells.iter().filter(|cell| cell.fg == color).filter_map(eighths).sum::<usize>();
        let rest = cells.iter().filter(|cell| cell.bg == color).filter_map(eighths).map(|eighths| 8 - eighths);
        filled + rest.sum::<usize>()
    };
    let [parameters, state, activations, fetched] = [25, 97, 114, 183].map(|index| colored(Color::Indexed(index)));
    assert!(parameters > 0 && activations > 0 && fetched == 0);
    // Twice the bytes.
    assert!((1.7..2.3).contains(&(state as f64 / parameters as f64)), "{state} {parameters}");
}

/// What the next test runs on a terminal.
#[test]
#[ignore = "it panics"]
fn a_panic_on_a_screen() {
    let _screen = super::terminal::Screen::enter().expect("a terminal");
    super::super::notes::keep(Stream::Out, "told before");
    panic!("over and out");
}

/// On a terminal, of which only a process of its own can be robbed.
#[cfg(target_os = "linux")]
#[test]
fn a_panic_gives_the_terminal_back() {
    let test = "cli::tui::tests::a_panic_on_a_screen";
    let program = std::env::current_exe().expect("a path");
    let command = format!("{} --exact {test} --ignored --nocapture; stty -a", program.display());
    let mut script = std::process::Command::new("script");
    let output = script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").output().expect("script runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, after) = text.split_once("\u{1b}[?1049h").unwrap_or_else(|| panic!("no screen:\n{text}"));
    let (_, after) = after.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("it is not given back:\n{text}"));
    for words in ["\u{1b}[?25h", "told before", "over and out", " icanon", " echo "] {
        assert!(after.contains(words), "{words:?}\n{after}");
    }
}
