//! What a kernel binds and needs, read from the checked module: never retyped in Rust.

use naga::proc::Layouter;
use naga::valid::{
    Capabilities, GlobalUse, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator,
};
use naga::{AddressSpace, Module, StorageAccess};
use serde::{Deserialize, Serialize};

use super::{Family, Kernel, StorageType, Variant, source};
use crate::error::ShaderError;

/// A parsed module that naga found valid.
#[derive(Debug)]
pub struct Checked {
    /// The WGSL.
    pub source: String,
    /// The module.
    pub module: Module,
    /// naga's analysis, which its back ends need.
    pub info: ModuleInfo,
    /// What the module may use: gate each back end with its `supported_capabilities()`.
    pub capabilities: Capabilities,
}

/// One buffer that an entry point uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// The number in `@binding(…)`.
    pub index: u32,
    /// Whether it is declared `read_write`.
    pub writable: bool,
}

/// What one entry point binds and needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reflection {
    /// The buffers that it uses, by number.
    pub bindings: Vec<Binding>,
    /// Size of the parameter struct.
    pub params_bytes: u32,
    /// Invocations of a workgroup.
    pub workgroup_size: [u32; 3],
    /// Workgroup memory.
    pub workgroup_bytes: u32,
}

/// naga's capabilities for a variant: no more than it needs.
fn capabilities(variant: &Variant) -> Capabilities {
    let mut capabilities = Capabilities::IMMEDIATES;
    if matches!(variant.family, Family::Subgroup { .. }) {
        capabilities |= Capabilities::SUBGROUP;
    }
    if variant.storage == StorageType::F16 {
        capabilities |= Capabilities::SHADER_FLOAT16;
    }
    capabilities
}

/// Parses and validates one variant of a kernel's file.
///
/// # Errors
/// Where the file is missing, a directive is malformed or naga refuses the WGSL.
pub fn module(kernel: Kernel, variant: &Variant) -> Result<Checked, ShaderError> {
    let source = source(kernel, variant)?;
    let path = format!("{}.wgsl after preprocessing", kernel.file);
    let invalid = |reason: String| ShaderError::Invalid { kernel: kernel.to_string(), reason };
    let module = naga::front::wgsl::parse_str(&source)
        .map_err(|error| invalid(error.emit_to_string_with_path(&source, &path)))?;
    let capabilities = capabilities(variant);
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .subgroup_stages(ShaderStages::COMPUTE)
        .subgroup_operations(SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|error| invalid(error.emit_to_string_with_path(&source, &path)))?;
    if !module.entry_points.iter().any(|entry| entry.name == kernel.entry) {
        return Err(invalid(format!("the file has no entry point `{}`", kernel.entry)));
    }
    Ok(Checked { source, module, info, capabilities })
}

/// Reads what an entry point binds and needs.
///
/// # Errors
/// As [`module`]; also where the entry point binds anything but storage buffers of group 0.
pub fn reflect(kernel: Kernel, variant: &Variant) -> Result<Reflection, ShaderError> {
    module(kernel, variant)?.reflect(kernel)
}

impl Checked {
    /// Reads what an entry point binds and needs.
    ///
    /// # Errors
    /// Where the module lacks the entry point, or that binds anything but storage buffers of group 0.
    pub fn reflect(&self, kernel: Kernel) -> Result<Reflection, ShaderError> {
        let invalid = |reason: String| ShaderError::Invalid { kernel: kernel.to_string(), reason };
        let entry = self.module.entry_points.iter().position(|entry| entry.name == kernel.entry);
        let entry = entry.ok_or_else(|| invalid(format!("the file has no entry point `{}`", kernel.entry)))?;
        let uses = self.info.get_entry_point(entry);
        let mut layouter = Layouter::default();
        layouter.update(self.module.to_ctx()).map_err(|error| invalid(error.to_string()))?;

        let mut reflection = Reflection {
            bindings: Vec::new(),
            params_bytes: 0,
            workgroup_size: self.module.entry_points[entry].workgroup_size,
            workgroup_bytes: 0,
        };
        for (handle, global) in self.module.global_variables.iter() {
            if uses[handle] == GlobalUse::empty() {
                continue;
            }
            let name = global.name.as_deref().unwrap_or("?");
            let size = layouter[global.ty].size;
            match (global.space, global.binding) {
                (AddressSpace::Storage { access }, Some(binding)) if binding.group == 0 => {
                    let writable = access.contains(StorageAccess::STORE);
                    reflection.bindings.push(Binding { index: binding.binding, writable });
                }
                (AddressSpace::Immediate, None) => reflection.params_bytes = size,
                // WebGPU counts each variable rounded up to 16.
                (AddressSpace::WorkGroup, None) => reflection.workgroup_bytes += size.next_multiple_of(16),
                (AddressSpace::Private, None) => {}
                (space, _) => return Err(invalid(format!("`{name}` in {space:?} is not allowed in a kernel"))),
            }
        }
        reflection.bindings.sort_by_key(|binding| binding.index);
        Ok(reflection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::Access;

    fn variant(in_place: Option<usize>, access: Access) -> Variant {
        Variant { storage: StorageType::F32, access, in_place, family: Family::Workgroup, consts: Vec::new() }
    }

    const FORWARD: Kernel = Kernel { file: "relu", entry: "forward" };
    const GRAD_INPUT: Kernel = Kernel { file: "relu", entry: "grad_input" };

    #[test]
    fn reads_bindings_of_the_entry_point_only() {
        let read = reflect(GRAD_INPUT, &variant(None, Access::Read)).expect("relu is valid");
        let binding = |index, writable| Binding { index, writable };
        assert_eq!(read.bindings, [binding(0, false), binding(1, false), binding(2, true)]);
        assert_eq!((read.params_bytes, read.workgroup_size, read.workgroup_bytes), (4, [64, 1, 1], 0));
        let in_place = reflect(FORWARD, &variant(Some(0), Access::ReadWrite)).expect("relu is valid");
        assert_eq!(in_place.bindings, [binding(1, true)]);
    }

    #[test]
    fn an_unknown_entry_point_is_an_error() {
        let error = reflect(Kernel { file: "relu", entry: "nothing" }, &variant(None, Access::Read));
        assert!(matches!(error, Err(ShaderError::Invalid { .. })), "{error:?}");
    }
}
