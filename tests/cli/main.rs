//! Tests of the command line: each runs the program itself.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod advise;
mod bench;
mod budgets;
mod calibrate;
mod command;
mod commands;
mod data;
mod documents;
mod find_lr;
mod interop;
mod loss_scale;
mod lost_work;
mod runs;
#[cfg(feature = "tui")]
mod screen;
mod trace;
