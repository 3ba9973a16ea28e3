//! What an op launches against what its kernels declare, by reflection and without a device.

use std::collections::BTreeSet;

use super::dispatch::{MAX_GRID, MAX_PARAMS_BYTES};
use crate::error::{OpError, ShaderError};
use crate::ops::{Dispatch, Op, Slot};
use crate::shader::{self, Access, Family, HalfForm, Reflection, StorageType, Target, Variant};
use crate::tensor::{DType, TensorDesc};

/// WebGPU's default limits, which every device meets.
const MAX_INVOCATIONS: u32 = 256;
const MAX_WORKGROUP_BYTES: u32 = 16 << 10;

/// How tensors lie in memory: f32, what is of 16 bits, and how inputs are bound.
const FORMS: [(StorageType, Option<HalfForm>, Access); 8] = [
    (StorageType::F32, None, Access::Read),
    (StorageType::F32, None, Access::ReadWrite),
    (StorageType::F32Words, None, Access::Read),
    (StorageType::F32Words, None, Access::ReadWrite),
    (StorageType::F32, Some(HalfForm::NativeF16), Access::Read),
    (StorageType::F32, Some(HalfForm::F16), Access::Read),
    (StorageType::F32, Some(HalfForm::Bf16), Access::ReadWrite),
    (StorageType::F32Words, Some(HalfForm::Bf16), Access::Read),
];

/// Compiles with naga all kernels that an op launches on inputs of these shapes, in every variant that devices may ask for, and
/// compares what each declares with what the op gives it, as [`Dispatch::check`] does. Needs no device. Returns how many kernels and
/// variants that were.
///
/// ```
/// use tightfit::ops::{check_launches, elementwise::relu::Relu};
/// use tightfit::tensor::TensorDesc;
///
/// assert!(check_launches(&Relu, &[TensorDesc::f32([5, 3])])? > 0);
/// # Ok::<(), tightfit::ops::LaunchError>(())
/// ```
///
/// # Errors
/// Where the op refuses the shapes, a kernel does not compile, or a launch does not fit it.
pub fn check_launches(op: &dyn Op, inputs: &[TensorDesc]) -> Result<usize, LaunchError> {
    let outputs = op.outputs(inputs)?;
    let family = Family::Subgroup { size: 8 };
    let targets = [Target::default(), Target::new(family), Target { short_code: true, ..Target::new(family) }];
    let mut checked = BTreeSet::new();
    for dispatch in targets.iter().flat_map(|target| op.dispatches(inputs, &outputs, target)) {
        for variant in dispatch.variants(op, inputs, &outputs) {
            let reflection = shader::module(dispatch.kernel, &variant)?.reflect(dispatch.kernel)?;
            dispatch.check(op, &variant, &reflection).map_err(|reason| {
                let kernel = dispatch.kernel.to_string();
                ShaderError::Invalid { kernel, reason: format!("as {variant:?}: {reason}") }
            })?;
            checked.insert((dispatch.kernel, variant));
        }
    }
    Ok(checked.len())
}

/// Why the launches of an op do not fit its kernels.
#[derive(thiserror::Error, Clone, Debug, PartialEq)]
pub enum LaunchError {
    /// The op refuses the shapes.
    #[error(transparent)]
    Op(#[from] OpError),
    /// A kernel does not compile, or a launch does not fit it.
    #[error(transparent)]
    Shader(#[from] ShaderError),
}

impl Dispatch {
    /// Every way in which devices may have the kernel compiled for this launch: how tensors lie in memory, how inputs are bound, and
    /// which input's memory the output takes over.
    pub fn variants(&self, op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<Variant> {
        let mut variants = Vec::new();
        for (storage, half, access) in FORMS {
            let is_half = half.is_some();
            let half = |slot: Slot| {
                let is_float = match slot {
                    Slot::Input(i) => inputs[i].dtype == DType::F32 && !op.mutates().contains(&i),
                    Slot::Output(i) => outputs[i].dtype == DType::F32,
                    Slot::Workspace(_) => false,
                };
                half.filter(|_| is_float)
            };
            variants.push(self.variant(storage, &half, access, None));
            // What is left unbound does not depend on how the others lie in memory.
            let pairs = op.in_place().iter().filter(|_| !is_half).map(|&pair| Some(pair));
            variants.extend(pairs.map(|in_place| self.variant(storage, &half, access, in_place)));
        }
        variants
    }

    /// Compares the launch with what its kernel declares in a variant: bindings by number, which of them are written, parameters by
    /// name, type and place, and the limits that every device has.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, op: &dyn Op, variant: &Variant, reflection: &Reflection) -> Result<(), String> {
        let check = |good: bool, reason: String| if good { Ok(()) } else { Err(reason) };
        reflection.other_params(self.params.fields()).map_or(Ok(()), Err)?;
        let bytes = self.params.bytes().len() as u32;
        check(
            bytes == reflection.params_bytes && bytes as usize <= MAX_PARAMS_BYTES,
            format!("the op gives {bytes} bytes of parameters, the kernel takes {}", reflection.params_bytes),
        )?;
        let unbound = variant.in_place.map(Slot::Input);
        let bound: Vec<u32> =
            (0u32..).zip(&self.bindings).filter(|(_, slot)| Some(**slot) != unbound).map(|(i, _)| i).collect();
        let used: Vec<u32> = reflection.bindings.iter().map(|binding| binding.index).collect();
        check(bound == used, format!("the op binds {bound:?}, the kernel uses {used:?}"))?;
        let distinct: BTreeSet<String> = self.bindings.iter().map(|slot| format!("{slot:?}")).collect();
        check(distinct.len() == self.bindings.len(), format!("a slot is bound twice: {:?}", self.bindings))?;
        for binding in &reflection.bindings {
            let slot = self.bindings[binding.index as usize];
            let readable = matches!(slot, Slot::Input(i) if !op.mutates().contains(&i));
            check(
                variant.access == Access::ReadWrite || !readable || !binding.writable,
                format!("binding {} ({slot:?}) is read_write, but the op does not change it", binding.index),
            )?;
            check(
                variant.access == Access::Read || binding.writable,
                format!("binding {} ({slot:?}) stays read-only in the read_write variant", binding.index),
            )?;
        }
        let invocations = reflection.workgroup_size.iter().product::<u32>();
        check(invocations <= MAX_INVOCATIONS, format!("{invocations} invocations in a workgroup"))?;
        check(
            reflection.workgroup_bytes <= MAX_WORKGROUP_BYTES,
            format!("{} bytes of workgroup memory", reflection.workgroup_bytes),
        )?;
        check(
            self.grid.iter().all(|&extent| (1..=MAX_GRID).contains(&extent)),
            format!("a grid of {:?} workgroups", self.grid),
        )
    }
}
