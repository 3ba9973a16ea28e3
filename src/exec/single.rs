//! One op on a device, alone: what the tests of kernels run.

use super::launch::{Launch, Location, Storage};
use crate::device::{ALIGNMENT_BYTES, Buffer, Device, Range, Readback, UploadRing};
use crate::error::DeviceError;
use crate::ops::stored::{dispatches, outputs_alone};
use crate::ops::{Op, Slot, workspaces};
use crate::shader::{Access, Target};
use crate::tensor::TensorDesc;

/// How to run an op alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// `Read`: each tensor has its own buffer. `ReadWrite`: all share one, as in an arena.
    pub access: Access,
    /// The pair (input, output) of [`Op::in_place`] that shares memory.
    pub in_place: Option<(usize, usize)>,
    /// Which kernels; `None` takes the device's.
    pub target: Option<Target>,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { access: Access::Read, in_place: None, target: None }
    }
}

/// Staging for the few bytes of a test.
const STAGING_BYTES: u64 = 1 << 20;

/// Lies between tensors that share a buffer, to see writes past their end.
const GUARD_BYTES: u64 = ALIGNMENT_BYTES;

/// Fills guards, padding and memory whose contents are undefined. As a float it is not a number, so that reading it shows.
const POISON: u8 = 0xff;

/// A tensor's or workspace's memory.
struct Region {
    /// What it holds beforehand; padding and all else is poison.
    data: Vec<u8>,
    size_bytes: u64,
    buffer: usize,
    offset_bytes: u64,
}

/// Runs `op` on `inputs`, each a shape and its bytes. Returns the bytes of the outputs, followed by the new contents of
/// the inputs that [`Op::mutates`] names.
///
/// # Errors
/// Where the op refuses the inputs, an input's length is wrong, a kernel writes where it must not, or the device fails.
pub fn run_op(
    device: &Device,
    op: &dyn Op,
    inputs: &[(TensorDesc, Vec<u8>)],
    options: RunOptions,
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let invalid = |reason: String| DeviceError::Validation { label: op.name().to_owned(), reason };
    let descs: Vec<_> = inputs.iter().map(|(desc, _)| desc.clone()).collect();
    if let Some((desc, data)) = inputs.iter().find(|(desc, data)| desc.size_bytes() != data.len() as u64) {
        return Err(invalid(format!("{} bytes given for {desc}", data.len())));
    }
    let outputs = outputs_alone(op, &descs).map_err(|error| invalid(error.to_string()))?;
    let (mut regions, output_regions, first_workspace) = lay_out(op, inputs, &descs, &outputs, options);

    let shared = options.access == Access::ReadWrite;
    let buffers = place(device, &mut regions, shared)?;
    let mut upload = UploadRing::new(device, 2, STAGING_BYTES)?;
    for (i, buffer) in buffers.iter().enumerate() {
        let mut contents = vec![POISON; buffer.size_bytes() as usize];
        for region in regions.iter().filter(|region| region.buffer == i) {
            let start = region.offset_bytes as usize;
            contents[start..start + region.data.len()].copy_from_slice(&region.data);
        }
        upload.write(device, buffer, 0, &contents)?;
    }
    upload.flush(device)?;

    let locate = |slot: Slot| {
        let region = &regions[match slot {
            Slot::Input(i) => i,
            Slot::Output(i) => output_regions[i],
            Slot::Workspace(i) => first_workspace + i,
        }];
        let buffer = &buffers[region.buffer];
        Location { buffer, offset_bytes: region.offset_bytes, size_bytes: region.size_bytes }
    };
    let target = options.target.unwrap_or_else(|| device.target());
    let storage = Storage::new(device, &descs, &outputs);
    let launches = dispatches(op, &descs, &outputs, &target)
        .into_iter()
        .map(|dispatch| Launch::new(device, dispatch, storage, options.access, options.in_place, &locate))
        .collect::<Result<Vec<_>, _>>()?;
    let mut encoder = device.encoder();
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        launches.iter().for_each(|launch| launch.record(&mut pass));
    }
    device.submit(encoder)?;

    let mut readback = Readback::new(device, STAGING_BYTES)?;
    let ranges: Vec<_> =
        buffers.iter().map(|buffer| Range { buffer, offset_bytes: 0, size_bytes: buffer.size_bytes() }).collect();
    let contents = readback.read(device, &ranges)?;
    let changed: Vec<_> = output_regions.iter().copied().chain(op.mutates().iter().copied()).collect();
    check_untouched(&regions, &contents, &changed, inputs.len()).map_err(invalid)?;
    let read = |region: usize, desc: &TensorDesc| {
        let Region { buffer, offset_bytes, .. } = regions[region];
        contents[buffer][offset_bytes as usize..][..desc.size_bytes() as usize].to_vec()
    };
    let made = output_regions.iter().zip(&outputs).map(|(&region, desc)| read(region, desc));
    Ok(made.chain(op.mutates().iter().map(|&i| read(i, &descs[i]))).collect())
}

/// One region per input, then one per output that has its own memory, then the workspaces. Returns also each output's
/// region and the first workspace's.
fn lay_out(
    op: &dyn Op,
    inputs: &[(TensorDesc, Vec<u8>)],
    descs: &[TensorDesc],
    outputs: &[TensorDesc],
    options: RunOptions,
) -> (Vec<Region>, Vec<usize>, usize) {
    let region = |data: Vec<u8>, size_bytes: u64| Region {
        data,
        size_bytes: size_bytes.max(1).next_multiple_of(ALIGNMENT_BYTES),
        buffer: 0,
        offset_bytes: 0,
    };
    let mut regions: Vec<_> = inputs.iter().map(|(desc, data)| region(data.clone(), desc.size_bytes())).collect();
    let output_regions = outputs
        .iter()
        .enumerate()
        .map(|(i, desc)| match options.in_place {
            Some((input, output)) if output == i => input,
            _ if op.is_view() && i == 0 => 0,
            _ => {
                regions.push(region(Vec::new(), desc.size_bytes()));
                regions.len() - 1
            }
        })
        .collect();
    let first_workspace = regions.len();
    regions.extend(workspaces(op, descs, outputs, None).into_iter().map(|bytes| region(Vec::new(), bytes)));
    (regions, output_regions, first_workspace)
}

/// Gives each region its place, with a guard behind it.
fn place(device: &Device, regions: &mut [Region], shared: bool) -> Result<Vec<Buffer>, DeviceError> {
    let mut sizes: Vec<u64> = Vec::new();
    for region in regions {
        if !shared || sizes.is_empty() {
            sizes.push(0);
        }
        region.buffer = sizes.len() - 1;
        region.offset_bytes = sizes[region.buffer];
        sizes[region.buffer] += region.size_bytes + GUARD_BYTES;
    }
    sizes.into_iter().map(|size| device.create_storage("tensors of one op", size)).collect()
}

/// Guards, and inputs that the op does not change, are as they were.
fn check_untouched(regions: &[Region], contents: &[Vec<u8>], changed: &[usize], inputs: usize) -> Result<(), String> {
    for (i, region) in regions.iter().enumerate() {
        let data = &contents[region.buffer][region.offset_bytes as usize..];
        let (data, rest) = data.split_at(region.size_bytes as usize);
        let what = if i < inputs { format!("input {i}") } else { format!("region {i} ({inputs} inputs come first)") };
        if let Some(at) = rest[..GUARD_BYTES as usize].iter().position(|&byte| byte != POISON) {
            return Err(format!("a kernel wrote {at} bytes past the memory of {what}"));
        }
        if i < inputs && !changed.contains(&i) && data[..region.data.len()] != region.data[..] {
            return Err(format!("a kernel changed {what}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::device_or_skip;
    use crate::ops::elementwise::relu::Relu;

    #[test]
    fn relu_in_every_variant() {
        let Some(device) = device_or_skip() else { return };
        for len in [1_usize, 7, 256, 1000] {
            let input: Vec<f32> = (0..len).map(|i| i as f32 - len as f32 / 2.0).collect();
            let expected: Vec<f32> = input.iter().map(|x| x.max(0.0)).collect();
            let inputs = [(TensorDesc::f32([len]), bytemuck::cast_slice(&input).to_vec())];
            for access in [Access::Read, Access::ReadWrite] {
                for in_place in [None, Some((0, 0))] {
                    let options = RunOptions { access, in_place, target: None };
                    let outputs = run_op(&device, &Relu, &inputs, options).expect("runs");
                    assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&outputs[0]), expected, "{options:?}");
                }
            }
        }
    }

    #[test]
    fn wrong_inputs_are_errors() {
        let Some(device) = device_or_skip() else { return };
        let short = [(TensorDesc::f32([4]), vec![0; 12])];
        let error = run_op(&device, &Relu, &short, RunOptions::default());
        assert!(matches!(error, Err(DeviceError::Validation { .. })), "{error:?}");
        let refused = [(TensorDesc::u32([4]), vec![0; 16])];
        let error = run_op(&device, &Relu, &refused, RunOptions::default());
        assert!(matches!(error, Err(DeviceError::Validation { .. })), "{error:?}");
    }
}
