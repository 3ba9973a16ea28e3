//! Nothing that was learned is lost, whatever becomes of disks, outputs, names and memory.
#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tightfit::nn::Sequential;
use tightfit::testing::device_or_skip;
use tightfit::train::{Config, Trainer};

use crate::command::{Fixture, MODEL, last, refused, run, tightfit};

/// Counts the bytes of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

#[allow(unsafe_code)]
// SAFETY: all memory is the system allocator's; counting takes none.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: isize) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(live.get())));
    });
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that this thread had at once during `work`, beyond those that it had before.
fn taken_by(work: impl FnOnce()) -> isize {
    let before = LIVE.get();
    MOST.set(before);
    work();
    MOST.get() - before
}

#[test]
fn what_comes_after_the_last_step_takes_no_memory_of_the_models_size() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gpu = device_or_skip().map(|device| device.info().index.to_string());
    for device in gpu.into_iter().chain(["cpu".to_owned()]) {
        let model = Sequential::new("wide", [1024]).linear(2048).linear(10);
        let mut trainer = Trainer::new(model, Config::default().batch(4), &device).expect("trainer");
        let size_bytes = 4 * trainer.model().parameter_count().expect("builds") as isize;
        let path = folder.path().join("w");
        // What is set up at first use is none of it.
        trainer.save(&path).expect("saves");
        let saving = taken_by(|| trainer.save(&path).expect("saves"));
        let hashing = taken_by(|| drop(trainer.parameters_sha256().expect("reads")));
        assert!(size_bytes > 8_000_000 && saving < 500_000 && hashing < 500_000, "{device}: {saving}, {hashing}");
        let reading = taken_by(|| drop(trainer.state_dict().expect("reads")));
        assert!(reading >= size_bytes, "the count sees {reading} of {size_bytes} bytes");
    }
}

/// Trains without end until a step was made, then lets `meanwhile` happen and interrupts it. The exit code and the last object.
fn interrupted(mut command: Command, meanwhile: impl FnOnce()) -> (Option<i32>, Value) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("UTF-8"));
    assert!(lines.any(|line| line.contains("\"step\"")), "training begins");
    meanwhile();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs").success());
    let object = serde_json::from_str(&lines.last().expect("an object")).expect("JSON");
    (child.wait().expect("ends").code(), object)
}

#[test]
fn where_saving_fails_at_the_end_parameters_are_saved_elsewhere() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let (gone, here) = (fixture.path("gone"), fixture.path("here"));
    fs::create_dir(&here).expect("creates");
    // Nothing is overwritten.
    fs::write(here.join("w.st"), "old").expect("writes");
    for name in ["w-1.st", "w-2.st"] {
        fs::create_dir(&gone).expect("creates");
        let save = gone.join("w.st");
        let more = ["--epochs", "1000000", "--log-every", "1", "--json", "--save", save.to_str().expect("UTF-8")];
        let mut command = tightfit();
        command.args(fixture.train_args(&model, &more)).current_dir(&here);
        let (code, object) = interrupted(command, || fs::remove_dir(&gone).expect("removes"));
        assert_eq!(code, Some(5), "{object}");
        let place = object["saved"].as_str().expect("a place");
        assert_eq!(fs::canonicalize(place).expect("is there"), fs::canonicalize(here.join(name)).expect("is there"));
        assert!(object["error"].as_str().expect("a text").ends_with(&format!("saved to {place} instead")), "{object}");
        let eval = ["eval", model.to_str().expect("UTF-8"), "--device", "cpu", "--data"];
        let data = fixture.dir.path().to_str().expect("UTF-8");
        assert_eq!(run(&[&eval[..], &[data, "--weights", place]].concat()).status.code(), Some(0));
    }
    assert_eq!(fs::read_to_string(here.join("w.st")).expect("readable"), "old");
}

#[test]
fn after_a_nan_it_is_said_what_became_of_the_parameters() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let save = fixture.path("w.st");
    // The loss of the first step is finite, what its update makes of the parameters is not.
    let rates = ["--optimizer", "adamw", "--lr", "3.4e38", "--weight-decay", "1", "--steps", "1"];
    let more = [&rates[..], &["--save", save.to_str().expect("UTF-8")]].concat();
    let message = refused(&fixture.train_args(&model, &more), 4);
    assert!(message.contains("made by an update") && message.contains("not written"), "{message}");
    assert!(!save.exists());
}

#[test]
fn a_training_that_learns_nothing_overwrites_nothing() {
    let fixture = Fixture::new();
    let save = fixture.path("w.st");
    let old = b"\x02\0\0\0\0\0\0\0{}";
    fs::write(&save, old).expect("writes");
    fixture.write("few.toml", MODEL.replace("out_features = 10", "out_features = 3").as_bytes());
    let model = fixture.path("few.toml");
    refused(&fixture.train_args(&model, &["--save", save.to_str().expect("UTF-8")]), 2);
    assert_eq!(fs::read(&save).expect("readable"), old);
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_of_writing() {
    let fixture = Fixture::new();
    let (model, save) = (fixture.path("tiny.toml"), fixture.path("w.st"));
    let args = fixture.train_args(&model, &["--save", save.to_str().expect("UTF-8")]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tightfit")]).args(args);
    let output = limited.env("TIGHTFIT_PROFILES", fixture.dir.path()).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--save") && stderr.contains("too large") && !save.exists(), "{stderr}");
}

/// Just below the least address space with which a training ends well, it says what there is no memory for.
#[test]
fn memory_that_is_short_is_an_error_before_the_first_step() {
    let fixture = Fixture::new();
    // Of several threads each takes address space when it likes.
    let args = fixture.train_args(Path::new("mnist-mlp"), &["--steps", "1", "--threads", "1"]);
    let train = |limit_kib: u32| {
        let mut limited = Command::new("sh");
        let limit = format!("ulimit -v {limit_kib}; exec \"$0\" \"$@\"");
        limited.args(["-c", &limit, env!("CARGO_BIN_EXE_tightfit")]).args(&args);
        let output = limited.env("TIGHTFIT_PROFILES", fixture.dir.path()).output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (mut short, mut enough) = (20_000, 200_000);
    assert_eq!(train(enough).0, Some(0));
    while enough - short > 100 {
        let limit_kib = short.midpoint(enough);
        if train(limit_kib).0 == Some(0) { enough = limit_kib } else { short = limit_kib }
    }
    for limit_kib in (short - 3_000..=short).step_by(500) {
        let (code, stderr) = train(limit_kib);
        assert_eq!(code, Some(4), "{limit_kib} KiB, where {enough} are enough: {stderr}");
        // After warnings that it was planned again for less.
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && last.contains("out of memory"), "{limit_kib} KiB: {stderr}");
    }
}

#[test]
fn a_full_output_is_an_error_but_ends_no_training() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let save = fixture.path("w.st");
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("is there");
    let more = ["--epochs", "3", "--log-every", "1", "--save", save.to_str().expect("UTF-8")];
    let train = fixture.train_args(&model, &more);
    let with_json = [&train[..], &["--json"]].concat();
    for args in [&train[..], &with_json, &["plan", "mnist-mlp"], &["plan", "mnist-mlp", "--json"], &["--help"]] {
        let output = tightfit().args(args).stdout(full()).stderr(Stdio::piped()).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {stderr}");
        assert!(stderr.contains("standard output could not be written"), "{args:?}: {stderr}");
        // Training went on to its end.
        assert!(args[0] != "train" || fs::remove_file(&save).is_ok(), "{args:?}");
    }
}

#[test]
fn paths_need_not_be_text() {
    let fixture = Fixture::new();
    let folder = fixture.dir.path().join(OsStr::from_bytes(b"f\xff"));
    fs::create_dir(&folder).expect("creates");
    for entry in fs::read_dir(fixture.dir.path()).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_file() {
            fs::copy(&path, folder.join(path.file_name().expect("a name"))).expect("copies");
        }
    }
    let at = |name: &[u8]| folder.join(OsStr::from_bytes(name));
    let model = at(b"m\xfe.toml");
    fs::rename(at(b"tiny.toml"), &model).expect("renames");
    let text = |text: &str| OsString::from(text);
    let own = |path: &Path| path.as_os_str().to_owned();
    let (svg, plan, save) = (at(b"p\xfe.svg"), at(b"p\xfe"), at(b"w\xfe"));
    let device = [text("--device"), text("cpu")];
    let data = [&[text("--data"), own(&folder)], &device[..]].concat();
    let plan_args = [text("--batch"), text("10"), text("--svg"), own(&svg), text("--output"), own(&plan)];
    let plan_args = [&plan_args[..], &device].concat();
    let train_args = [text("--plan"), own(&plan), text("--save"), own(&save)];
    let again = [text("--weights"), own(&save), text("--skip-mismatched"), text("--batch"), text("10")];
    for args in [
        &[&[text("plan"), own(&model)], &plan_args[..]].concat(),
        &[&[text("train"), own(&model)], &train_args[..], &data].concat(),
        &[&[text("train"), own(&model)], &again[..], &data].concat(),
        &[&[text("eval"), own(&model), text("--weights"), own(&save)], &data[..]].concat(),
    ] {
        for json in [&[][..], &[text("--json")]] {
            let output = tightfit().args(args).args(json).output().expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        }
    }
    assert!([svg, plan, save].iter().all(|path| path.is_file()));
    for args in [
        &[text("plan"), own(&at(b"gone\xfe.toml"))][..],
        &[text("plan"), own(&at(b"gone\xfe"))],
        &[text("plan"), text("mnist-mlp"), text("--device"), own(&at(b"gone\xfe.json"))],
        &[text("train"), own(&model), text("--save"), own(&at(b"gone\xfe/w"))],
    ] {
        let output = tightfit().args(args).arg("--json").output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn inputs_without_an_end_are_refused() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let pipe = fixture.path("pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let folder = fixture.path("folder.toml");
    fs::create_dir(&folder).expect("creates");
    let model = model.to_str().expect("UTF-8");
    let data = fixture.dir.path().to_str().expect("UTF-8");
    for path in [&pipe, &folder, &PathBuf::from("/dev/zero")] {
        let path = path.to_str().expect("UTF-8");
        let eval = ["eval", model, "--data", data, "--device", "cpu", "--weights", path];
        let train = ["train", model, "--data", data, "--device", "cpu", "--batch", "10"];
        for args in [
            &["plan", path][..],
            &["plan", "mnist-mlp", "--svg", path],
            &[&train[..], &["--plan", path]].concat(),
            &[&train[..], &["--weights", path]].concat(),
            &[&train[..], &["--save", path]].concat(),
            &eval,
        ] {
            let message = refused(args, 2);
            assert!(message.contains("not a regular file"), "{args:?}: {message}");
        }
    }
    for path in [pipe.to_str().expect("UTF-8"), "/dev/zero"] {
        assert!(refused(&["plan", "mnist-mlp", "--device", path], 2).contains("not a regular file"));
    }
}

#[test]
fn links_that_lead_to_themselves_are_said_to() {
    let fixture = Fixture::new();
    let (circle, folder) = (fixture.path("circle"), fixture.path("folder"));
    let named = fixture.path("circle.toml");
    symlink("circle", &circle).expect("links");
    symlink("circle.toml", &named).expect("links");
    fs::create_dir(&folder).expect("creates");
    for name in ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"] {
        let name = format!("{name}-ubyte");
        symlink(&name, folder.join(&name)).expect("links");
    }
    let [circle, named, folder] = [&circle, &named, &folder].map(|path| path.to_str().expect("UTF-8"));
    let data = fixture.dir.path().to_str().expect("UTF-8");
    let train = ["train", "mnist-mlp", "--device", "cpu", "--batch", "10"];
    for args in [
        &["plan", circle][..],
        &["plan", named],
        &["plan", "mnist-mlp", "--device", circle],
        &["plan", "mnist-mlp", "--svg", circle],
        &[&train[..], &["--data", circle]].concat(),
        &[&train[..], &["--data", folder]].concat(),
        &[&train[..], &["--data", data, "--weights", circle]].concat(),
        &[&train[..], &["--data", data, "--plan", circle]].concat(),
        &[&train[..], &["--data", data, "--save", circle]].concat(),
    ] {
        let message = refused(args, 2);
        assert!(message.contains("symbolic links"), "{args:?}: {message}");
    }
}

#[test]
fn nothing_is_kept_in_files_of_the_system_and_none_of_another_kind_is_replaced() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    for path in ["/proc/x", "/proc/self/comm", "/sys/x"] {
        let message = refused(&fixture.train_args(&model, &["--save", path]), 2);
        assert!(message.starts_with(&format!("--save {path}: ")) && message.contains("makes up"), "{message}");
    }
    let notes = fixture.path("notes");
    fs::write(&notes, "mine").expect("writes");
    let (text, model_text) = (notes.to_str().expect("UTF-8"), model.to_str().expect("UTF-8"));
    for args in [
        &["plan", model_text, "--output", text][..],
        &["plan", model_text, "--svg", text],
        &fixture.train_args(&model, &["--save", text]),
    ] {
        let message = refused(args, 2);
        assert!(message.contains("would replace a file of another kind"), "{message}");
    }
    assert_eq!(fs::read_to_string(&notes).expect("there"), "mine");
    let message = refused(&fixture.train_args(&model, &["--save", "w.pt"]), 2);
    assert!(message.contains("written as safetensors") && message.ends_with("name it w.safetensors"), "{message}");
    assert!(refused(&["plan", model_text, "--svg", "p.png"], 2).ends_with("name it p.svg"));
    // Its own outputs again and again.
    for _ in 0..2 {
        let [plan, svg, save] = ["p.json", "p.svg", "w"].map(|name| fixture.path(name));
        let [plan, svg, save] = [&plan, &svg, &save].map(|path| path.to_str().expect("UTF-8"));
        let output = run(&["plan", model_text, "--batch", "10", "--output", plan, "--svg", svg]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let output = run(&fixture.train_args(&model, &["--steps", "1", "--save", save]));
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn names_are_tried_in_advance_and_links_followed() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let refused_name = |path: &Path| {
        let message = refused(&fixture.train_args(&model, &["--save", path.to_str().expect("UTF-8")]), 2);
        assert!(message.starts_with("--save"), "{message}");
        message
    };
    assert!(refused_name(&fixture.path(&"w".repeat(300))).contains("too long"));
    let (link, target) = (fixture.path("link"), fixture.path("target"));
    symlink("target", &link).expect("links");
    let args = fixture.train_args(&model, &["--steps", "1", "--save", link.to_str().expect("UTF-8")]);
    assert_eq!(run(&args).status.code(), Some(0));
    assert!(link.is_symlink() && target.is_file(), "the link was replaced");
    symlink("circle", fixture.path("circle")).expect("links");
    refused_name(&fixture.path("circle"));
    symlink("gone/target", fixture.path("lost")).expect("links");
    refused_name(&fixture.path("lost"));
}

/// What containers do: a file that is mounted by itself can only be written in place, and disks are full.
#[test]
fn mounts_are_written_in_place_or_refused_in_advance() {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-e", "-c", script]);
        command
    };
    if !unshare("mount -t tmpfs none /mnt").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no mounts without privileges here");
        return;
    }
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let train = |model: &Path, save: &Path, mount: &str| {
        let save = save.to_str().expect("UTF-8");
        let args = fixture.train_args(model, &["--steps", "1", "--json", "--save", save]);
        let mut command = unshare(&format!("{mount}; exec \"$@\""));
        command.arg("sh").arg(env!("CARGO_BIN_EXE_tightfit")).args(args).current_dir(fixture.dir.path());
        let output = command.output().expect("runs");
        (output.status.code(), last(&output))
    };
    let (file, mounted) = (fixture.path("file"), fixture.path("mounted"));
    // What was saved there before.
    fs::write(&file, [&[7; 8][..], b"{", &vec![7; 1 << 20]].concat()).expect("writes");
    fs::write(&mounted, "").expect("writes");
    let (code, summary) = train(&model, &mounted, "mount --bind file mounted");
    assert_eq!(code, Some(0), "{summary}");
    let length = fs::metadata(&file).expect("is there").len();
    assert!((1000..10_000).contains(&length), "{length}");
    assert_eq!(fs::metadata(&mounted).expect("is there").len(), 0, "below the mount nothing changed");

    let (code, object) = train(&model, &mounted, "mount --bind file mounted; mount -o remount,bind,ro mounted");
    assert_eq!(code, Some(2), "{object}");
    fs::create_dir(fixture.path("small")).expect("creates");
    let (code, object) =
        train(Path::new("mnist-mlp"), &fixture.path("small/w"), "mount -t tmpfs -o size=4k none small");
    assert_eq!(code, Some(2), "{object}");
    assert!(object["error"].as_str().expect("a text").contains("MiB are to be written"), "{object}");
}
