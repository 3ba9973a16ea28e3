//! TensorBoard's event files.
//!
//! A file is a row of records: `u64` length, CRC of these 8 bytes, data, CRC of the data, all little-endian. The CRC is CRC-32C, rotated and
//! with a constant added so that a CRC of data that holds CRCs is not weak. The data is a message `Event` of protocol buffers.
//!
//! Source: <https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/event.proto>,
//! <https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h>

use std::fs;
use std::io::{BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::output::{Output, io_error, wall_time};
use super::{EPOCH, Log, STEP, check_names};
use crate::error::DataError;
use crate::files;

/// No event of this writer is longer.
const MOST_EVENT_BYTES: u64 = 1 << 20;
/// What begins the name of each event file.
const PREFIX: &str = "events.out.tfevents.";
/// Values of validation data begin so; they are a run of their own, so that one chart shows both.
const VALIDATION: &str = "val_";

/// A log for TensorBoard: a folder with the runs `train` and, from the first value that begins with `val_`, `validation`. Of a value
/// `loss`, the tag `step/loss` is what each step reports and `epoch/loss` what epochs come to, both over steps, and `epoch` says which
/// epoch ended where.
///
/// A run that goes on writes a new file, which says from which step on earlier ones do not count any more.
#[derive(Debug)]
pub struct TensorBoardLog {
    folder: PathBuf,
    train: Events,
    validation: Option<Events>,
    /// The first step that is written.
    start: u64,
    last_step: u64,
    last_epoch: u64,
}

impl TensorBoardLog {
    /// Opens a new event file in the folder, which is made where there is none. `resume_at` is the last step that counts of those
    /// that are there: see [`Log`]. Without it, none does.
    ///
    /// # Errors
    /// Where no file can be written there.
    pub fn open(folder: &Path, resume_at: Option<u64>) -> Result<Self, DataError> {
        let start = resume_at.map_or(0, |last| last.saturating_add(1));
        let last_epoch = last_epoch(&folder.join("train"), start)?;
        let train = Events::create(&folder.join("train"), start)?;
        let validation = folder.join("validation");
        let validation = validation.is_dir().then(|| Events::create(&validation, start)).transpose()?;
        Ok(TensorBoardLog {
            folder: folder.to_owned(),
            train,
            validation,
            start,
            last_step: start.max(1) - 1,
            last_epoch,
        })
    }

    /// Adds what a step or epoch reports to the runs that it belongs to.
    fn add(&mut self, kind: &str, step: u64, values: &[(&str, f64)], others: &[(&str, f64)]) -> Result<(), DataError> {
        let tag = |name: &str| format!("{kind}/{name}");
        let (mut train, mut validation) = (Vec::new(), Vec::new());
        for &(name, value) in values {
            match name.strip_prefix(VALIDATION).filter(|name| !name.is_empty()) {
                Some(name) => validation.push((tag(name), value)),
                None => train.push((tag(name), value)),
            }
        }
        train.extend(others.iter().map(|&(name, value)| (name.to_owned(), value)));
        self.train.scalars(step, &train)?;
        if validation.is_empty() {
            return Ok(());
        }
        let run = match &mut self.validation {
            Some(run) => run,
            None => self.validation.insert(Events::create(&self.folder.join("validation"), self.start)?),
        };
        run.scalars(step, &validation)
    }

    fn outputs(&mut self) -> impl Iterator<Item = &mut Output> {
        std::iter::once(&mut self.train).chain(&mut self.validation).map(|events| &mut events.output)
    }
}

impl Log for TensorBoardLog {
    fn step(&mut self, step: u64, _: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        check_names(values)?;
        if step <= self.last_step {
            return Ok(());
        }
        self.last_step = step;
        self.add(STEP, step, values, &[])
    }

    fn epoch(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        check_names(values)?;
        if epoch <= self.last_epoch {
            return Ok(());
        }
        self.last_epoch = epoch;
        self.add(EPOCH, step, values, &[(EPOCH, epoch as f64)])?;
        self.outputs().try_for_each(Output::write)
    }

    fn flush(&mut self) -> Result<(), DataError> {
        self.outputs().try_for_each(Output::sync)
    }
}

/// An event file.
#[derive(Debug)]
struct Events {
    output: Output,
}

impl Events {
    /// A new file after those of the folder, whose events from step `start` on do not count any more.
    fn create(folder: &Path, start: u64) -> Result<Self, DataError> {
        files::make_folder_of(&folder.join(PREFIX))?;
        let mut events = Events { output: new_file(folder)? };
        events.event(0, &field_bytes(3, b"brain.Event:2"))?;
        // SessionLog.status = START.
        events.event(start, &field_bytes(7, &field_varint(1, 1)))?;
        events.output.write()?;
        Ok(events)
    }

    fn scalars(&mut self, step: u64, values: &[(String, f64)]) -> Result<(), DataError> {
        let mut summary = Vec::new();
        for (tag, value) in values {
            let mut message = field_bytes(1, tag.as_bytes());
            message.push(2 << 3 | FIXED32);
            message.extend_from_slice(&(*value as f32).to_le_bytes());
            summary.extend(field_bytes(1, &message));
        }
        if values.is_empty() { Ok(()) } else { self.event(step, &field_bytes(5, &summary)) }
    }

    /// Adds an `Event`: the time, the step, and what happened.
    fn event(&mut self, step: u64, what: &[u8]) -> Result<(), DataError> {
        let mut message = vec![1 << 3 | FIXED64];
        message.extend_from_slice(&wall_time().to_le_bytes());
        message.extend(field_varint(2, step));
        message.extend_from_slice(what);
        let length = (message.len() as u64).to_le_bytes();
        let parts = [&length[..], &masked_crc(&length), &message, &masked_crc(&message)];
        self.output.row(&parts.concat())
    }
}

/// The names of a folder's event files; none where there is no folder.
fn event_files(folder: &Path) -> Result<Vec<String>, DataError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io_error(folder, error))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with(PREFIX)).collect())
}

/// The last epoch that a folder's event files have of steps before `start`. It may be the one at whose end the checkpoint was written, which
/// then ends once more. What is not of this writer has none.
fn last_epoch(folder: &Path, start: u64) -> Result<u64, DataError> {
    let mut last = 0;
    for name in event_files(folder)? {
        let path = folder.join(name);
        let (file, _) = files::open_regular(&path, "delete it")?;
        let mut reader = BufReader::new(file);
        let mut head = [0; 12];
        // The last record of a process that was killed may be cut off.
        while reader.read_exact(&mut head).is_ok() {
            let length = head.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
            let mut record = vec![0; length.min(MOST_EVENT_BYTES) as usize];
            if length > MOST_EVENT_BYTES
                || reader.read_exact(&mut record).is_err()
                || reader.read_exact(&mut [0; 4]).is_err()
            {
                break;
            }
            last = last.max(epoch_of(&record).filter(|&(step, _)| step < start).map_or(0, |(_, epoch)| epoch));
        }
    }
    Ok(last)
}

/// The step and the epoch of an event that says which epoch ended: its last value.
fn epoch_of(event: &[u8]) -> Option<(u64, u64)> {
    let (event, value) = event.split_last_chunk()?;
    let tag = [&field_bytes(1, EPOCH.as_bytes())[..], &[2 << 3 | FIXED32]].concat();
    let mut rest = event.strip_suffix(&tag[..])?.get(9..)?.strip_prefix(&[2 << 3])?.iter();
    let mut step = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *rest.next()?;
        step |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some((step, f32::from_le_bytes(*value) as u64))
}

/// TensorBoard reads a folder's files by name, so a new one has a later time than all that are there.
fn new_file(folder: &Path) -> Result<Output, DataError> {
    let names = event_files(folder)?;
    let times = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse::<u64>().ok());
    let now = wall_time() as u64;
    let mut time = times.max().map_or(now, |last| now.max(last.saturating_add(1)));
    loop {
        let path = folder.join(format!("{PREFIX}{time:010}.tightfit.{}", std::process::id()));
        match Output::create_new(&path) {
            Err(DataError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => time += 1,
            created => return created,
        }
    }
}

// Types of fields.
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn field_varint(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

fn field_bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | BYTES], &*varint(bytes.len() as u64), bytes].concat()
}

fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The reflected polynomial of Castagnoli, bit by bit: records are short.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let of_byte = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, of_byte)
}
