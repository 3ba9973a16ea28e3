#![doc = include_str!("../README.md")]

pub mod autodiff;
pub mod data;
pub mod device;
pub mod error;
pub mod exec;
pub mod files;
pub mod graph;
pub mod models;
pub mod nn;
pub mod ops;
pub mod plan;
pub mod shader;
pub mod tensor;
pub mod train;
