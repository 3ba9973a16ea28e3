//! Compiled kernels, made once per kernel and variant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use web_time::Instant;

use super::Device;
use crate::error::DeviceError;
use crate::shader::{self, Family, HalfForm, Kernel, Reflection, Variant};

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    /// What it binds and needs.
    pub(crate) reflection: Reflection,
}

/// One kernel in one variant, once it is compiled. Each has a lock of its own, so that several are compiled at the same time.
type Own = Arc<Mutex<Option<Arc<Pipeline>>>>;

/// All kernels compiled so far.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    made: Mutex<HashMap<(Kernel, Variant), Own>>,
}

impl Device {
    /// The compiled kernel, compiling it where that has not happened yet. Threads that ask for others meanwhile do not wait.
    ///
    /// # Errors
    /// Where the shader is broken, the device lacks what the variant needs, or the driver refuses it.
    pub(crate) fn pipeline(&self, kernel: Kernel, variant: &Variant) -> Result<Arc<Pipeline>, DeviceError> {
        let mut made = self.pipelines.made.lock().unwrap_or_else(PoisonError::into_inner);
        let own = made.entry((kernel, variant.clone())).or_default().clone();
        drop(made);
        let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = own.as_ref() {
            return Ok(pipeline.clone());
        }
        let start = Instant::now();
        let pipeline = Arc::new(self.compile(kernel, variant)?);
        log::debug!("compiled {kernel} in {:.3} s", start.elapsed().as_secs_f64());
        *own = Some(pipeline.clone());
        Ok(pipeline)
    }

    /// A pipeline that is not kept.
    pub(super) fn compile(&self, kernel: Kernel, variant: &Variant) -> Result<Pipeline, DeviceError> {
        let unsupported =
            |missing: &str| DeviceError::Unsupported { adapter: self.info.name.clone(), missing: missing.to_owned() };
        if variant.halves.iter().any(|&(_, half)| half == HalfForm::NativeF16) && !self.info.f16 {
            return Err(unsupported("16-bit floats"));
        }
        if !self.supports(variant.family) {
            return Err(unsupported(&match variant.family {
                Family::Workgroup => "workgroups".to_owned(),
                Family::Subgroup { size } => format!("subgroups of exactly {size} invocations"),
                Family::Cooperative { size, operand } => format!("matrices of {size} by {size} {operand:?}"),
            }));
        }
        let checked = shader::module(kernel, variant)?;
        let reflection = checked.reflect(kernel)?;
        let label = kernel.to_string();
        let (raw, layout) =
            self.scoped(&label, 0, |device| build(device, kernel, variant, &checked.source, &reflection))?;
        self.check()?;
        Ok(Pipeline { raw, layout, reflection })
    }
}

impl Device {
    /// Binds buffers to a compiled kernel.
    pub(crate) fn create_bind_group(
        &self,
        pipeline: &Pipeline,
        label: &str,
        entries: &[wgpu::BindGroupEntry<'_>],
    ) -> Result<wgpu::BindGroup, DeviceError> {
        let descriptor = wgpu::BindGroupDescriptor { label: Some(label), layout: &pipeline.layout, entries };
        self.scoped(label, 0, |device| device.create_bind_group(&descriptor))
    }
}

fn build(
    device: &wgpu::Device,
    kernel: Kernel,
    variant: &Variant,
    source: &str,
    reflection: &Reflection,
) -> (wgpu::ComputePipeline, wgpu::BindGroupLayout) {
    let label = &kernel.to_string();
    let module = create_module(device, label, source, shader::is_of_crate(kernel, variant));
    let entries: Vec<_> = reflection
        .bindings
        .iter()
        .map(|binding| wgpu::BindGroupLayoutEntry {
            binding: binding.index,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: !binding.writable },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(label), entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(label),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: reflection.params_bytes,
    });
    let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(kernel.entry),
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: variant.family.needs_zeroed_workgroup_memory(),
            ..wgpu::PipelineCompilationOptions::default()
        },
        cache: None,
    });
    (raw, layout)
}

/// Compiles WGSL: our own without the counter that wgpu adds to every loop, which costs up to a quarter of the time.
#[allow(unsafe_code)]
fn create_module(device: &wgpu::Device, label: &str, source: &str, is_own: bool) -> wgpu::ShaderModule {
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(source.into()) };
    if !is_own {
        return device.create_shader_module(descriptor);
    }
    let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
    // SAFETY: the only check switched off is the one for endless loops. The source is made of files of this crate, none of
    // a user's, and each of its loops is bounded by parameters that the op derives from shapes; `Dispatch::loops` holds
    // the bound to 65,535. Bounds checks on buffers stay on.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}
