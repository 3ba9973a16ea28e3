//! What stands in the place of an executor that was let go.

use super::{Clock, Executor, NodeTime};
use crate::error::DeviceError;
use crate::graph::{Graph, Phase};
use crate::tensor::ValueId;

/// Holds nothing and runs nothing.
#[derive(Debug)]
pub(crate) struct Released;

fn gone<T>() -> Result<T, DeviceError> {
    Err(DeviceError::Lost { reason: "it was released".to_owned() })
}

impl Executor for Released {
    fn device_name(&self) -> &'static str {
        "none"
    }

    fn write(&mut self, _name: &str, _data: &[u8]) -> Result<(), DeviceError> {
        gone()
    }

    fn read_pieces(&mut self, _name: &str, _visit: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        gone()
    }

    fn upload(&mut self, _program: usize, _inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        gone()
    }

    fn launch(&mut self, _program: usize, _read: &[&str]) -> Result<(), DeviceError> {
        gone()
    }

    fn collect(&mut self) -> Result<Vec<Vec<u8>>, DeviceError> {
        gone()
    }

    fn outputs(&mut self, _program: usize) -> Result<Vec<Vec<u8>>, DeviceError> {
        gone()
    }

    fn inspect(
        &mut self,
        _program: usize,
        _inputs: &[(&str, &[u8])],
        _until: Phase,
        _visit: &mut dyn FnMut(&Graph, ValueId, &[u8]) -> bool,
    ) -> Result<(), DeviceError> {
        gone()
    }

    fn profile(&mut self, _program: usize, _read: &[&str]) -> Result<Vec<NodeTime>, DeviceError> {
        gone()
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn is_in_process(&self) -> bool {
        false
    }

    fn peak_bytes(&self) -> u64 {
        0
    }
}
