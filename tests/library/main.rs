//! Tests of the library as its users see it, except the suite over all ops.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod access_order;
mod adam8bit;
mod advise;
mod architecture;
mod arithmetic;
mod arrays;
mod attention;
mod augment;
mod augment_settings;
mod batch_norm;
mod budgets;
mod checkpoints;
mod compression;
mod custom_op;
mod data;
#[cfg(feature = "download")]
mod download;
mod formulas;
mod fused;
mod fusion;
#[cfg(feature = "images")]
mod images;
#[cfg(feature = "interop")]
mod keras;
mod layers;
mod loading;
mod loss_scale;
mod losses;
mod metrics;
mod models;
mod monitors;
mod mutations;
mod objectives;
#[cfg(feature = "interop")]
mod onnx;
mod open_loop;
mod plans;
mod portability;
mod precision;
mod public_api;
mod reconfigure;
mod recovery;
mod recurrent;
mod schedules;
mod sequences;
mod splits;
mod tables;
#[cfg(feature = "interop")]
mod torch;
mod trace;
mod training;
mod zoo;
