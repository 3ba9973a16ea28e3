//! Which devices there are, and which of them to open.

use std::sync::OnceLock;

use serde::Serialize;

use super::memory::{self, AvailableMemory};
use crate::error::{DeviceError, nearest};

/// Invocations of a workgroup, its memory and the parameters that kernels may count on.
const MIN_INVOCATIONS: u32 = 256;
const MIN_WORKGROUP_BYTES: u32 = 16 << 10;
pub(super) const MIN_PARAMS_BYTES: u32 = 128;
/// Inputs, outputs and workspaces of the largest op.
const MIN_BINDINGS: u32 = 8;

/// What compiles kernels for DX12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShaderCompiler {
    /// The DirectX Shader Compiler: quick, but Windows comes without its `dxcompiler.dll`.
    Dxc,
    /// The one that Windows comes with.
    Fxc,
}

/// One adapter of this machine. A GPU that two drivers reach is listed once for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdapterInfo {
    /// Position in the list; a selector for [`Device::open`](super::Device::open).
    pub index: usize,
    /// The name; a part of it is a selector too.
    pub name: String,
    /// `vulkan`, `metal`, `dx12` or `gl`.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// `discrete`, `integrated`, `virtual`, `cpu` or `other`.
    pub device_type: String,
    /// What compiles its kernels, where that is not the driver alone: on DX12.
    pub shader_compiler: Option<ShaderCompiler>,
    /// Fewest invocations of a subgroup; 0 without subgroups.
    pub subgroup_min_size: u32,
    /// Most invocations of a subgroup; 0 without subgroups.
    pub subgroup_max_size: u32,
    /// Largest buffer.
    pub max_buffer_bytes: u64,
    /// Largest part of a buffer that a kernel can see.
    pub max_binding_bytes: u64,
    /// Whether kernels may use 16-bit floats.
    pub f16: bool,
    /// Rows and columns of the matrices of 32-bit floats that its subgroups of 32 invocations multiply; 0 where it says of none.
    pub cooperative_size: u32,
    /// The same of floats of 16 bits, with sums in 32 bits.
    pub cooperative_f16_size: u32,
    /// Whether the device uses the host's memory, so that moving data to the host frees nothing.
    pub unified_memory: bool,
    /// What it lacks to run tightfit; empty where nothing.
    pub missing: Vec<String>,
}

impl AdapterInfo {
    /// What compiles its kernels, and how they would compile quicker; `None` where that is the driver's affair.
    pub fn compiler_note(&self) -> Option<&'static str> {
        Some(match self.shader_compiler? {
            ShaderCompiler::Dxc => "kernels are compiled by DXC",
            ShaderCompiler::Fxc => {
                "kernels are compiled by FXC; DXC is quicker: put dxcompiler.dll (1.8.2502 or later, from the releases of \
                 Microsoft's DirectXShaderCompiler) beside the program or on PATH"
            }
        })
    }
}

/// An adapter with its description.
pub(super) struct Candidate {
    pub(super) info: AdapterInfo,
    pub(super) adapter: wgpu::Adapter,
}

/// All adapters of this machine, those that OpenGL reaches last. In WebAssembly there are none: a browser's GPU answers only after
/// the caller has returned, and tightfit waits for it.
///
/// # Errors
/// None at present: a machine without adapters has an empty list.
pub fn list() -> Result<Vec<AdapterInfo>, DeviceError> {
    Ok(candidates(true).into_iter().map(|candidate| candidate.info).collect())
}

/// As [`list`], with what each has free now; `None` where its driver does not say.
///
/// # Errors
/// As [`list`].
pub fn list_with_memory() -> Result<Vec<(AdapterInfo, Option<AvailableMemory>)>, DeviceError> {
    let with_memory = |Candidate { info, adapter }| {
        let memory = memory::of_adapter(&info, &adapter);
        (info, memory)
    };
    Ok(candidates(true).into_iter().map(with_memory).collect())
}

/// The adapter of the best real GPU; `None` where there is none but drivers that run kernels on the CPU.
pub(crate) fn best_gpu() -> Option<AdapterInfo> {
    // Asking Vulkan loads all drivers, those in software too, which stay and take as much memory as a small training.
    if !may_have_gpu() {
        return None;
    }
    find(None).ok().filter(|gpu| gpu.device_type != "cpu")
}

/// Whether there is a device file of a GPU, without which no driver of one works.
fn may_have_gpu() -> bool {
    const FILES: [&str; 5] = ["/dev/dri", "/dev/nvidiactl", "/dev/dxg", "/dev/kgsl-3d0", "/dev/mali0"];
    !cfg!(target_os = "linux") || FILES.iter().any(|file| std::path::Path::new(file).exists())
}

/// The adapter that [`Device::open`](super::Device::open) would open, without opening it.
///
/// # Errors
/// Where there is no such adapter, or it lacks something.
pub fn find(selector: Option<&str>) -> Result<AdapterInfo, DeviceError> {
    Ok(choose(selector)?.info)
}

/// What an instance of wgpu looks at.
#[derive(Clone, Copy)]
enum Api {
    /// Vulkan and Metal.
    Native,
    Dx12(ShaderCompiler),
    Gl,
}

/// The instances of this process, so that drivers are loaded once. OpenGL has its own, made only where it is looked at:
/// its loader writes warnings to the terminal of a machine without a display. DX12 has one for each compiler, because wgpu
/// does not tell which it took.
fn instance(api: Api) -> &'static wgpu::Instance {
    static INSTANCES: [OnceLock<wgpu::Instance>; 4] = [const { OnceLock::new() }; 4];
    let (slot, backends) = match api {
        Api::Native => (0, wgpu::Backends::PRIMARY.difference(wgpu::Backends::DX12)),
        Api::Dx12(ShaderCompiler::Dxc) => (1, wgpu::Backends::DX12),
        Api::Dx12(ShaderCompiler::Fxc) => (2, wgpu::Backends::DX12),
        Api::Gl => (3, wgpu::Backends::GL),
    };
    INSTANCES[slot].get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = backends;
        descriptor.backend_options.dx12.shader_compiler = match api {
            Api::Dx12(ShaderCompiler::Dxc) => wgpu::Dx12Compiler::default_dynamic_dxc(),
            _ => wgpu::Dx12Compiler::Fxc,
        };
        // wgpu's own validation stays on; driver validation layers and debug labels cost time and are for debugging.
        descriptor.flags = wgpu::InstanceFlags::empty();
        wgpu::Instance::new(descriptor)
    })
}

fn enumerate(api: Api) -> Vec<(Api, wgpu::Adapter)> {
    let adapters = pollster::block_on(instance(api).enumerate_adapters(wgpu::Backends::all()));
    adapters.into_iter().map(|adapter| (api, adapter)).collect()
}

fn candidates(with_gl: bool) -> Vec<Candidate> {
    // Without a backend for the target, wgpu has no instance.
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Vec::new();
    }
    let mut adapters = enumerate(Api::Native);
    // DXC has none where its library is missing or too old, or where no adapter takes its code.
    let compilers = [ShaderCompiler::Dxc, ShaderCompiler::Fxc];
    let mut of_dx12 = compilers.into_iter().map(|compiler| enumerate(Api::Dx12(compiler)));
    adapters.extend(of_dx12.find(|found| !found.is_empty()).unwrap_or_default());
    if with_gl {
        adapters.extend(enumerate(Api::Gl));
    }
    let candidates = adapters.into_iter().enumerate();
    candidates.map(|(index, (api, adapter))| Candidate { info: describe(index, api, &adapter), adapter }).collect()
}

fn describe(index: usize, api: Api, adapter: &wgpu::Adapter) -> AdapterInfo {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let device_type = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        wgpu::DeviceType::Cpu => "cpu",
        wgpu::DeviceType::Other => "other",
    };
    let subgroups = features.contains(wgpu::Features::SUBGROUP);
    let has_units = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) && subgroups;
    let matrices = |operand| if has_units { cooperative_size(adapter, &info, operand) } else { 0 };
    let driver = format!("{} {}", info.driver, info.driver_info);
    AdapterInfo {
        index,
        name: info.name.clone(),
        backend: info.backend.to_str().to_owned(),
        driver: driver.trim().to_owned(),
        device_type: device_type.to_owned(),
        shader_compiler: match api {
            Api::Dx12(compiler) => Some(compiler),
            Api::Native | Api::Gl => None,
        },
        subgroup_min_size: if subgroups { info.subgroup_min_size } else { 0 },
        subgroup_max_size: if subgroups { info.subgroup_max_size } else { 0 },
        max_buffer_bytes: limits.max_buffer_size,
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        f16: features.contains(wgpu::Features::SHADER_F16),
        cooperative_size: matrices(wgpu::CooperativeScalarType::F32),
        cooperative_f16_size: if features.contains(wgpu::Features::SHADER_F16) {
            matrices(wgpu::CooperativeScalarType::F16)
        } else {
            0
        },
        unified_memory: matches!(device_type, "integrated" | "cpu"),
        missing: missing(adapter, &limits, features),
    }
}

/// The size of square matrices of this type that are multiplied, and summed in f32, where subgroups are known to have 32
/// invocations: Metal names bounds of what any device has, and those of Apple have 32.
fn cooperative_size(adapter: &wgpu::Adapter, info: &wgpu::AdapterInfo, operand: wgpu::CooperativeScalarType) -> u32 {
    let is_apple = info.backend == wgpu::Backend::Metal && info.name.contains("Apple");
    if !is_apple && (info.subgroup_min_size, info.subgroup_max_size) != (32, 32) {
        return 0;
    }
    let sizes = adapter.cooperative_matrix_properties().into_iter().filter(|matrix| {
        (matrix.ab_type, matrix.cr_type) == (operand, wgpu::CooperativeScalarType::F32)
            && matrix.m_size == matrix.n_size
            && matrix.n_size == matrix.k_size
            && matches!(matrix.m_size, 8 | 16)
    });
    sizes.map(|matrix| matrix.m_size).min().unwrap_or(0)
}

fn missing(adapter: &wgpu::Adapter, limits: &wgpu::Limits, features: wgpu::Features) -> Vec<String> {
    let flags = adapter.get_downlevel_capabilities().flags;
    let mut missing = Vec::new();
    let mut need = |met: bool, what: String| {
        if !met {
            missing.push(what);
        }
    };
    need(flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS), "compute shaders".to_owned());
    need(
        features.contains(wgpu::Features::IMMEDIATES) && limits.max_immediate_size >= MIN_PARAMS_BYTES,
        format!("{MIN_PARAMS_BYTES} bytes of immediates (push constants)"),
    );
    need(
        limits.max_compute_invocations_per_workgroup >= MIN_INVOCATIONS,
        format!("workgroups of {MIN_INVOCATIONS} invocations"),
    );
    need(
        limits.max_compute_workgroup_storage_size >= MIN_WORKGROUP_BYTES,
        format!("{MIN_WORKGROUP_BYTES} bytes of workgroup memory"),
    );
    need(
        limits.max_storage_buffers_per_shader_stage >= MIN_BINDINGS,
        format!("{MIN_BINDINGS} storage buffers in a kernel"),
    );
    missing
}

/// Finds the adapter for a selector, or the best one. Looks at OpenGL only where nothing else fits.
pub(super) fn choose(selector: Option<&str>) -> Result<Candidate, DeviceError> {
    let find = |with_gl| {
        let mut candidates = candidates(with_gl);
        let infos: Vec<_> = candidates.iter().map(|candidate| candidate.info.clone()).collect();
        let candidate = candidates.swap_remove(choose_index(&infos, selector)?);
        if candidate.info.missing.is_empty() {
            Ok(candidate)
        } else {
            Err(DeviceError::Unsupported { adapter: candidate.info.name, missing: candidate.info.missing.join(", ") })
        }
    };
    find(false).or_else(|_| find(true))
}

/// [`choose`] on descriptions alone.
pub(super) fn choose_index(infos: &[AdapterInfo], selector: Option<&str>) -> Result<usize, DeviceError> {
    if infos.is_empty() && selector.is_none() {
        return Err(DeviceError::NoAdapter);
    }
    let Some(selector) = selector else {
        let rank = |info: &AdapterInfo| match info.device_type.as_str() {
            "discrete" => 0,
            "integrated" => 1,
            "virtual" | "other" => 2,
            _ => 3,
        };
        let best = infos.iter().min_by_key(|info| (!info.missing.is_empty(), rank(info), info.index));
        return best.map(|info| info.index).ok_or(DeviceError::NoAdapter);
    };
    let wanted = selector.trim().to_lowercase();
    let number = wanted.parse::<usize>().ok();
    let by_index = number.filter(|&index| index < infos.len());
    let by_name = || {
        let matches = |info: &&AdapterInfo| {
            let name = format!("{} {}", info.name, info.backend).to_lowercase();
            // A number beyond the list may still be a word of a name: "4090" is, "9" is not.
            if number.is_some() { name.split_whitespace().any(|word| word == wanted) } else { name.contains(&wanted) }
        };
        infos.iter().find(matches).filter(|_| !wanted.is_empty()).map(|info| info.index)
    };
    by_index.or_else(by_name).ok_or_else(|| {
        let listed = infos.iter().map(|info| format!("{} ({}, {})", info.index, info.name, info.backend));
        let mut available = listed.chain(["cpu", "reference"].map(str::to_owned)).collect::<Vec<_>>().join(", ");
        // The words of a name are what people write.
        let words = infos.iter().flat_map(|info| info.name.split_whitespace().chain([info.backend.as_str()]));
        if let Some(near) = nearest(&wanted, words.chain(["cpu", "reference"])).first().filter(|_| number.is_none()) {
            available += &format!("; did you mean `{near}`?");
        }
        DeviceError::Unknown { selector: selector.to_owned(), available }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(index: usize, name: &str, backend: &str, device_type: &str) -> AdapterInfo {
        AdapterInfo {
            index,
            name: name.to_owned(),
            backend: backend.to_owned(),
            driver: String::new(),
            device_type: device_type.to_owned(),
            shader_compiler: None,
            subgroup_min_size: 0,
            subgroup_max_size: 0,
            max_buffer_bytes: 1 << 30,
            max_binding_bytes: 1 << 27,
            f16: false,
            cooperative_size: 0,
            cooperative_f16_size: 0,
            unified_memory: false,
            missing: Vec::new(),
        }
    }

    fn machine() -> Vec<AdapterInfo> {
        vec![
            adapter(0, "llvmpipe (LLVM 15.0.6, 256 bits)", "vulkan", "cpu"),
            adapter(1, "Intel Iris Xe", "vulkan", "integrated"),
            adapter(2, "NVIDIA GeForce RTX 4090", "vulkan", "discrete"),
            adapter(3, "NVIDIA GeForce RTX 4090", "gl", "discrete"),
        ]
    }

    #[test]
    fn the_best_adapter_is_the_default() {
        let mut infos = machine();
        assert_eq!(choose_index(&infos, None), Ok(2));
        infos[2].missing.push("something".to_owned());
        assert_eq!(choose_index(&infos, None), Ok(3));
        assert_eq!(choose_index(&infos[..2], None), Ok(1));
        assert_eq!(choose_index(&infos[..1], None), Ok(0));
        assert_eq!(choose_index(&[], None), Err(DeviceError::NoAdapter));
    }

    #[test]
    fn selectors_are_indices_or_parts_of_names() {
        let infos = machine();
        assert_eq!(choose_index(&infos, Some("1")), Ok(1));
        assert_eq!(choose_index(&infos, Some("4090")), Ok(2));
        assert_eq!(choose_index(&infos, Some("LLVMPIPE")), Ok(0));
        assert_eq!(choose_index(&infos, Some("4090 gl")), Ok(3));
    }

    #[test]
    fn the_note_on_the_compiler_says_how_to_get_the_quicker_one() {
        let mut info = adapter(0, "NVIDIA GeForce RTX 4090", "dx12", "discrete");
        assert_eq!(info.compiler_note(), None);
        info.shader_compiler = Some(ShaderCompiler::Dxc);
        assert_eq!(info.compiler_note(), Some("kernels are compiled by DXC"));
        info.shader_compiler = Some(ShaderCompiler::Fxc);
        let note = info.compiler_note().expect("there is one");
        assert!(note.contains("FXC") && note.contains("dxcompiler.dll") && note.contains("PATH"), "{note}");
        let json = serde_json::to_value(&info).expect("writes");
        assert_eq!(json["shader_compiler"], "fxc");
    }

    #[test]
    fn an_unknown_selector_lists_what_there_is() {
        for selector in ["radeon", "", "  ", "9", "-1"] {
            match choose_index(&machine(), Some(selector)) {
                Err(DeviceError::Unknown { available, .. }) => {
                    assert!(
                        available.contains("1 (Intel Iris Xe, vulkan)") && available.ends_with("cpu, reference"),
                        "{available}"
                    );
                }
                other => panic!("{selector}: {other:?}"),
            }
        }
        assert!(matches!(choose_index(&[], Some("x")), Err(DeviceError::Unknown { .. })));
        for (selector, near) in
            [("itnel", "`Intel`"), ("llvmpip3", "`llvmpipe`"), ("volkan", "`vulkan`"), ("cpo", "`cpu`")]
        {
            let error = choose_index(&machine(), Some(selector)).expect_err(selector).to_string();
            assert!(error.ends_with(&format!("; did you mean {near}?")), "{error}");
        }
    }
}
