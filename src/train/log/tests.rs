//! Logs of runs that are interrupted, and of disks that are full.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::output::{Output, Sink};
use super::tensorboard::crc32c;
use super::*;

const STEPS_PER_EPOCH: u64 = 5;

/// Reports of these steps. What epochs come to has a value that comes later, and one step a value of its own.
fn run(log: &mut dyn Log, steps: std::ops::RangeInclusive<u64>) {
    for step in steps {
        let epoch = (step - 1) / STEPS_PER_EPOCH + 1;
        let loss = 1.0 / step as f64;
        let values = [("loss", loss), ("lr", 1e-7), ("a, \"b\"", if step == 13 { f64::NAN } else { f64::INFINITY })];
        log.step(step, epoch, if step < 12 { &values[..2] } else { &values }).expect("written");
        if step % STEPS_PER_EPOCH == 0 {
            let values = [("loss", loss), ("val_loss", -loss), ("val_f1", 0.5)];
            log.epoch(step, epoch, if epoch < 3 { &values[..2] } else { &values }).expect("written");
        }
    }
}

fn open(kind: &str, folder: &Path, resume_at: Option<u64>) -> Result<Box<dyn Log>, DataError> {
    Ok(match kind {
        "csv" => Box::new(CsvLog::open(folder, resume_at)?),
        "jsonl" => Box::new(JsonlLog::open(&folder.join("log.jsonl"), resume_at)?),
        _ => Box::new(TensorBoardLog::open(folder, resume_at)?),
    })
}

/// The files without the times of day.
fn contents(folder: &Path) -> Vec<(String, String)> {
    let text = |path: &Path| {
        let text = fs::read_to_string(path).expect("readable");
        assert!(text.is_empty() || text.ends_with('\n'));
        let rows = text.lines().map(|line| match line.rsplit_once(",\"wall_time\":") {
            Some((rest, _)) => rest,
            None => line.rsplit_once(',').expect("columns").0,
        });
        rows.collect::<Vec<_>>().join("\n")
    };
    let entries = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> =
        entries.map(|path| (path.file_name().expect("a name").display().to_string(), text(&path))).collect();
    files.sort();
    files
}

#[test]
fn a_run_that_was_interrupted_has_the_log_of_one_that_was_not() {
    for kind in ["csv", "jsonl"] {
        let whole = tempfile::tempdir().expect("a folder");
        run(&mut *open(kind, whole.path(), None).expect("opened"), 1..=23);
        let expected = contents(whole.path());
        // The last step of the checkpoint, and the last before the end: at and around ends of epochs, before and after columns come.
        for (kept, made) in
            [(0, 3), (4, 9), (5, 5), (9, 15), (10, 11), (11, 12), (12, 23), (15, 16), (22, 23), (23, 23)]
        {
            let part = tempfile::tempdir().expect("a folder");
            let mut log = open(kind, part.path(), None).expect("opened");
            run(&mut *log, 1..=made);
            log.flush().expect("written");
            drop(log);
            // What a process leaves that is killed while it writes.
            for file in fs::read_dir(part.path()).expect("readable") {
                let path = file.expect("readable").path();
                let mut file = fs::OpenOptions::new().append(true).open(path).expect("opened");
                file.write_all(b"2,1,0.5").expect("written");
            }
            let mut log = open(kind, part.path(), Some(kept)).expect("opened");
            let cut = contents(part.path());
            run(&mut *log, kept + 1..=23);
            drop(log);
            assert_eq!(contents(part.path()), expected, "{kind} {kept} {made}");
            // Resumed and ended at once, it is that of a run that ended there.
            let short = tempfile::tempdir().expect("a folder");
            run(&mut *open(kind, short.path(), None).expect("opened"), 1..=kept);
            assert_eq!(cut, contents(short.path()), "{kind} {kept} {made}");
        }
        // Steps that are repeated in one run.
        let again = tempfile::tempdir().expect("a folder");
        let mut log = open(kind, again.path(), None).expect("opened");
        run(&mut *log, 1..=16);
        run(&mut *log, 8..=23);
        drop(log);
        assert_eq!(contents(again.path()), expected, "{kind}");
        // A run from the start replaces it.
        run(&mut *open(kind, again.path(), None).expect("opened"), 1..=1);
        assert_ne!(contents(again.path()), expected);
    }
}

#[test]
fn values_that_come_later_have_a_column() {
    let folder = tempfile::tempdir().expect("a folder");
    run(&mut CsvLog::open(folder.path(), None).expect("opened"), 1..=15);
    let text = fs::read_to_string(folder.path().join("steps.csv")).expect("readable");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.headers().expect("a header"), vec!["step", "epoch", "loss", "lr", "a, \"b\"", "wall_time"]);
    let rows: Vec<_> = reader.records().map(|row| row.expect("as long as the header")).collect();
    assert_eq!(
        rows.iter().take(4).map(|row| row[2].to_owned()).collect::<Vec<_>>(),
        ["1.0", "0.5", "0.3333333333333333", "0.25"]
    );
    assert_eq!([&rows[0][3], &rows[10][4], &rows[11][4], &rows[12][4]], ["1e-7", "", "inf", "NaN"]);
    let text = fs::read_to_string(folder.path().join("epochs.csv")).expect("readable");
    assert!(text.starts_with("epoch,step,loss,val_loss,val_f1,wall_time\n1,5,0.2,-0.2,,"), "{text}");
}

#[test]
fn json_lines_are_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    run(&mut *open("jsonl", folder.path(), None).expect("opened"), 1..=15);
    let text = fs::read_to_string(folder.path().join("log.jsonl")).expect("readable");
    assert!(
        text.starts_with("{\"event\":\"step\",\"step\":1,\"epoch\":1,\"loss\":1.0,\"lr\":1e-7,\"wall_time\":"),
        "{text}"
    );
    let objects: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 18);
    assert_eq!(
        (&objects[5]["event"], &objects[5]["step"], &objects[5]["val_loss"]),
        (&"epoch".into(), &5.into(), &(-0.2).into())
    );
    assert!(objects[14]["a, \"b\""].is_null() && objects[14]["wall_time"].is_f64());
}

#[test]
fn what_is_no_log_is_not_replaced() {
    for (kind, name) in [("csv", "steps.csv"), ("csv", "epochs.csv"), ("jsonl", "log.jsonl")] {
        for text in ["notes\n", "a,b,c\n1,2,3\n", "{\"model\":1}\n", &"x".repeat(2 << 20)] {
            for resume_at in [None, Some(1)] {
                let folder = tempfile::tempdir().expect("a folder");
                let path = folder.path().join(name);
                fs::write(&path, text).expect("written");
                let error = open(kind, folder.path(), resume_at).expect_err("refused").to_string();
                assert!(error.contains(name) && error.contains("is not such a log"), "{error}");
                assert_eq!(fs::read_to_string(&path).expect("there"), text);
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("written");
    for kind in ["csv", "jsonl", "tensorboard"] {
        assert!(open(kind, &folder.path().join("file/folder"), None).is_err());
    }
}

#[test]
fn names_that_a_row_cannot_have_are_refused() {
    for kind in ["csv", "jsonl", "tensorboard"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = open(kind, folder.path(), None).expect("opened");
        for (names, words) in [
            (["loss", "wall_time"], "cannot be named `wall_time`"),
            (["step", "loss"], "cannot be named `step`"),
            (["loss", "loss"], "two values of a log are named `loss`"),
            (["loss", "a\nb"], "cannot be named \"a\\nb\""),
            (["", "loss"], "cannot be named \"\""),
        ] {
            for error in
                [log.step(1, 1, &names.map(|name| (name, 0.0))), log.epoch(1, 1, &names.map(|name| (name, 0.0)))]
            {
                let error = error.expect_err("refused").to_string();
                assert!(error.contains(words), "{error}");
            }
        }
    }
}

/// A disk with so much room.
#[derive(Clone, Default)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.bytes.lock().expect("not poisoned");
        let fitting = bytes.len().min(self.room - written.len());
        written.extend_from_slice(&bytes[..fitting]);
        if fitting == 0 && !bytes.is_empty() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fitting) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Disk {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.lock().expect("not poisoned").truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_one_error_and_leaves_whole_rows() {
    let disk = Disk { room: 100_000, ..Disk::default() };
    let mut output = Output::to(Path::new("run/log.csv"), Box::new(disk.clone()), 0);
    let row = [&[b'x'; 99][..], b"\n"].concat();
    let mut errors = Vec::new();
    for _ in 0..5_000 {
        errors.extend(output.row(&row).err());
    }
    output.sync().expect("nothing to do any more");
    assert_eq!(errors.len(), 1);
    let text = errors[0].to_string();
    assert!(text.starts_with("run/log.csv: ") && text.contains("the log ends here: make room"), "{text}");
    let written = disk.bytes.lock().expect("not poisoned");
    assert!(!written.is_empty() && written.len().is_multiple_of(100) && written.len() < 100_000);
}

#[test]
fn rows_reach_the_file_when_an_epoch_ends() {
    for kind in ["csv", "jsonl"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = open(kind, folder.path(), None).expect("opened");
        run(&mut *log, 1..=10);
        let rows: usize = contents(folder.path()).iter().map(|(_, text)| text.lines().count()).sum();
        assert_eq!(rows, if kind == "csv" { 10 + 2 + 2 } else { 10 + 2 });
    }
}

/// The records of an event file.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let mut take = |count: usize| {
        let (taken, rest) = bytes.split_at(count);
        bytes = rest;
        (taken, rest.is_empty())
    };
    let unmasked =
        |crc: &[u8]| u32::from_le_bytes(crc.try_into().expect("4")).wrapping_sub(0xa282_ead8).rotate_left(15);
    loop {
        let (length, _) = take(8);
        assert_eq!(unmasked(take(4).0), crc32c(length));
        let (record, _) = take(u64::from_le_bytes(length.try_into().expect("8")) as usize);
        let (crc, is_last) = take(4);
        assert_eq!(unmasked(crc), crc32c(record));
        records.push(record.to_vec());
        if is_last {
            return records;
        }
    }
}

#[test]
fn event_files_are_framed_and_a_later_run_says_where_it_starts() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let folder = tempfile::tempdir().expect("a folder");
    run(&mut TensorBoardLog::open(folder.path(), None).expect("opened"), 1..=12);
    run(&mut TensorBoardLog::open(folder.path(), Some(7)).expect("opened"), 8..=300);
    for (run, counts) in [("train", [2 + 12 + 2, 2 + 293 + 59]), ("validation", [2 + 2, 2 + 59])] {
        let entries =
            fs::read_dir(folder.path().join(run)).expect("readable").map(|entry| entry.expect("readable").path());
        let mut files: Vec<_> = entries.collect();
        files.sort();
        let files: Vec<_> = files.iter().map(|file| records(&fs::read(file).expect("readable"))).collect();
        assert_eq!(files.iter().map(Vec::len).collect::<Vec<_>>(), counts, "{run}");
        for (file, start) in files.iter().zip([0, 8]) {
            // Behind the tag and the eight bytes of the time.
            assert_eq!(file[0][9..], *b"\x10\x00\x1a\x0dbrain.Event:2");
            assert_eq!(file[1][9..], [0x10, start, 0x3a, 2, 8, 1]);
        }
        if run == "train" {
            let last = files[1].last().expect("records");
            // Step 300, then the summary.
            assert_eq!(last[9..13], [0x10, 0xac, 0x02, 0x2a]);
            assert!(last.windows(10).any(|part| part == b"epoch/loss") && last.ends_with(&60_f32.to_le_bytes()));
        }
    }
    // The epoch at whose end the checkpoint was written may end once more.
    let mut log = TensorBoardLog::open(folder.path(), Some(300)).expect("opened");
    log.epoch(300, 60, &[("loss", 0.5)]).expect("written");
    log.epoch(305, 61, &[("loss", 0.5)]).expect("written");
    drop(log);
    let entries =
        fs::read_dir(folder.path().join("train")).expect("readable").map(|entry| entry.expect("readable").path());
    let last = entries.max().expect("files");
    assert_eq!(records(&fs::read(last).expect("readable")).len(), 2 + 1);
    // A folder for looking at with TensorBoard's own reader.
    if let Some(kept) = std::env::var_os("TIGHTFIT_LOGS") {
        for kind in ["csv", "jsonl", "tensorboard"] {
            let kept = Path::new(&kept).join(if kind == "tensorboard" { kind } else { "" });
            run(&mut *open(kind, &kept, None).expect("opened"), 1..=12);
            run(&mut *open(kind, &kept, Some(10)).expect("opened"), 10..=300);
        }
    }
}
