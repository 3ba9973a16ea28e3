//! A kernel launch made ready for a device: compiled, bound, and recorded as often as needed.

use std::sync::Arc;

use crate::device::{Buffer, Device, Pipeline};
use crate::error::DeviceError;
use crate::ops::{Dispatch, Op, Slot};
use crate::shader::{Access, HalfForm, Kernel, StorageType, Variant};
use crate::tensor::TensorDesc;

/// Where the data of one binding lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location<'a> {
    pub(super) buffer: &'a Buffer,
    pub(super) offset_bytes: u64,
    /// Rounded up to [`ALIGNMENT_BYTES`](crate::device::ALIGNMENT_BYTES).
    pub(super) size_bytes: u64,
}

/// A launch of one kernel on fixed data.
#[derive(Debug)]
pub(super) struct Launch {
    kernel: Kernel,
    variant: Variant,
    pipeline: Arc<Pipeline>,
    bindings: wgpu::BindGroup,
    params: Vec<u8>,
    grid: [u32; 3],
}

/// How the kernels of a node see its tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    inputs: &'a [TensorDesc],
    outputs: &'a [TensorDesc],
    floats: StorageType,
    has_f16: bool,
}

impl<'a> Storage<'a> {
    pub(super) fn new(device: &Device, inputs: &'a [TensorDesc], outputs: &'a [TensorDesc]) -> Self {
        let floats = device.float_storage();
        // Where vectors are words, four floats of 16 bits are one of them: less to load than four of the type f16.
        let has_f16 = device.info().f16 && floats == StorageType::F32;
        Storage { inputs, outputs, floats, has_f16 }
    }

    /// How a kernel is compiled.
    pub(super) fn variant(&self, dispatch: &Dispatch, access: Access, in_place: Option<(usize, usize)>) -> Variant {
        let half = |slot: Slot| {
            let dtype = match slot {
                Slot::Input(i) => self.inputs[i].dtype,
                Slot::Output(i) => self.outputs[i].dtype,
                Slot::Workspace(_) => return None,
            };
            dtype.half().map(|half| HalfForm::new(half, self.has_f16))
        };
        dispatch.variant(self.floats, &half, access, in_place)
    }
}

/// How inputs must be bound: wgpu refuses a buffer that one launch both reads and writes, unless each of its bindings
/// is `read_write`. An input
/// that its output's binding stands for does not count.
pub(super) fn access<'a>(
    op: &dyn Op,
    dispatch: &Dispatch,
    in_place: Option<(usize, usize)>,
    locate: &dyn Fn(Slot) -> Location<'a>,
) -> Access {
    let is_read_only = |slot: Slot| matches!(slot, Slot::Input(i) if !op.mutates().contains(&i));
    let unbound = dispatch.in_place_input(in_place).map(Slot::Input);
    let bound: Vec<_> = dispatch.bindings.iter().copied().filter(|&slot| Some(slot) != unbound).collect();
    let shared = bound.iter().enumerate().any(|(i, &a)| {
        bound[..i].iter().any(|&b| {
            let together = std::ptr::eq(locate(a).buffer, locate(b).buffer);
            together && !(is_read_only(a) && is_read_only(b))
        })
    });
    if shared { Access::ReadWrite } else { Access::Read }
}

impl Launch {
    /// Compiles the kernel and binds its data. `in_place` is the pair (input, output) that shares memory.
    pub(super) fn new<'a>(
        device: &Device,
        dispatch: Dispatch,
        storage: Storage<'_>,
        access: Access,
        in_place: Option<(usize, usize)>,
        locate: &dyn Fn(Slot) -> Location<'a>,
    ) -> Result<Self, DeviceError> {
        let kernel = dispatch.kernel;
        let variant = storage.variant(&dispatch, access, in_place);
        let pipeline = device.pipeline(kernel, &variant)?;
        let mismatch = |reason: String| DeviceError::Validation { label: kernel.to_string(), reason };
        let reflection = &pipeline.reflection;
        if let Some(reason) = reflection.other_params(dispatch.params.fields()) {
            return Err(mismatch(reason));
        }
        let entries = reflection
            .bindings
            .iter()
            .map(|binding| {
                let slot = dispatch.bindings.get(binding.index as usize);
                let slot = slot.ok_or_else(|| mismatch(format!("the op does not bind binding {}", binding.index)))?;
                let Location { buffer, offset_bytes, size_bytes } = locate(*slot);
                let size = std::num::NonZeroU64::new(size_bytes);
                let range = wgpu::BufferBinding { buffer: buffer.raw(), offset: offset_bytes, size };
                Ok(wgpu::BindGroupEntry { binding: binding.index, resource: wgpu::BindingResource::Buffer(range) })
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let bindings = device.create_bind_group(&pipeline, &kernel.to_string(), &entries)?;
        Ok(Launch { kernel, variant, pipeline, bindings, params: dispatch.params.into_bytes(), grid: dispatch.grid })
    }

    /// What it launches.
    pub(super) fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// What is compiled for it.
    pub(super) fn compiled(&self) -> (Kernel, &Variant) {
        (self.kernel, &self.variant)
    }

    /// Records the launch.
    pub(super) fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.record_grid(pass, self.grid);
    }

    /// Records a launch of no workgroups: it does nothing, but drivers that compile at the first launch do so.
    pub(super) fn record_empty(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.record_grid(pass, [0; 3]);
    }

    fn record_grid(&self, pass: &mut wgpu::ComputePass<'_>, [x, y, z]: [u32; 3]) {
        pass.set_pipeline(&self.pipeline.raw);
        pass.set_bind_group(0, &self.bindings, &[]);
        if !self.params.is_empty() {
            pass.set_immediates(0, &self.params);
        }
        pass.dispatch_workgroups(x, y, z);
    }
}
