//! For tests of ops, this crate's and your own, and of what runs them.
//!
//! An op is tested on its [`Case`]s: [`run_op`] runs its kernels on a device, alone, and its twin
//! ([`Op::run_f32`](crate::ops::Op::run_f32)) says what must come out.
//!
//! ```no_run
//! use tightfit::ops::elementwise::relu::Relu;
//! use tightfit::tensor::TensorDesc;
//! use tightfit::testing::{RunOptions, device_or_skip, run_op};
//!
//! let Some(device) = device_or_skip() else { return Ok(()) };
//! let input = bytemuck::cast_slice(&[-1.0_f32, 2.0]).to_vec();
//! let outputs = run_op(&device, &Relu, &[(TensorDesc::f32([2]), input)], RunOptions::default())?;
//! assert_eq!(bytemuck::cast_slice::<_, f32>(&outputs[0]), [0.0, 2.0]);
//! # Ok::<_, tightfit::error::DeviceError>(())
//! ```

pub use crate::device::testing::device_or_skip;
pub use crate::exec::measure::{CopyTime, Repeat, Stopwatch, Timing};
pub use crate::exec::single::{RunOptions, run_op};
pub use crate::ops::case::{Case, Entry, Fill};
pub use crate::shader::reflect::{Binding, Checked, Reflection, module};
pub use crate::shader::source::source;

/// Every op of this crate with its test cases, by name.
pub fn all_ops() -> Vec<Entry> {
    crate::ops::all()
}
