#![doc = include_str!("../README.md")]
// Without these features, what they make public is not.
#![cfg_attr(not(all(feature = "cli", feature = "testing")), allow(unreachable_pub))]

pub mod autodiff;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod command;
pub mod data;
pub mod device;
pub mod error;
pub mod exec;
mod files;
pub mod graph;
pub mod models;
pub mod nn;
pub mod ops;
pub mod plan;
pub mod shader;
pub mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod train;
mod words;
