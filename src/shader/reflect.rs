//! What a kernel binds and needs, read from the checked module: never retyped in Rust.

use std::borrow::Cow;
use std::fmt;

use naga::proc::Layouter;
use naga::valid::{
    Capabilities, GlobalUse, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator,
};
use naga::{AddressSpace, Handle, Module, ScalarKind, StorageAccess, Type, TypeInner};

use super::source::{packs_f16, uses_f16};
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
    #[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
    pub capabilities: Capabilities,
}

/// One buffer that an entry point uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The number in `@binding(…)`.
    pub index: u32,
    /// Whether it is declared `read_write`.
    pub writable: bool,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// `u32`
    U32,
    /// `i32`
    I32,
    /// `f32`
    F32,
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scalar::U32 => "u32",
            Scalar::I32 => "i32",
            Scalar::F32 => "f32",
        })
    }
}

/// A field of a kernel's parameter struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name in the shader.
    pub name: Cow<'static, str>,
    /// Its type.
    pub scalar: Scalar,
    /// Where it begins, in bytes.
    pub offset: u32,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at byte {}", self.name, self.scalar, self.offset)
    }
}

/// What one entry point binds and needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reflection {
    /// The buffers that it uses, by number.
    pub bindings: Vec<Binding>,
    /// The fields of the parameter struct.
    pub params: Vec<Field>,
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
    capabilities |= match variant.family {
        Family::Workgroup => Capabilities::empty(),
        Family::Subgroup { .. } => Capabilities::SUBGROUP,
        Family::Cooperative { .. } => Capabilities::SUBGROUP | Capabilities::COOPERATIVE_MATRIX,
    };
    if packs_f16(variant) {
        capabilities |= Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    }
    if uses_f16(variant) {
        capabilities |= Capabilities::SHADER_FLOAT16;
    }
    if variant.storage == StorageType::F32Words {
        capabilities |= Capabilities::SHADER_INT64;
    }
    capabilities
}

/// Parses and validates one variant of a kernel's file.
///
/// # Errors
/// Where the file is missing, a directive is malformed or naga refuses the WGSL.
pub fn module(kernel: Kernel, variant: &Variant) -> Result<Checked, ShaderError> {
    check(kernel, variant, source(kernel, variant)?)
}

fn check(kernel: Kernel, variant: &Variant, source: String) -> Result<Checked, ShaderError> {
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

impl Reflection {
    /// Why the parameters of a launch are not those that the kernel takes, name by name, type by type and place by place.
    pub fn other_params(&self, given: &[Field]) -> Option<String> {
        let show = |field: Option<&Field>| field.map_or_else(|| "nothing more".to_owned(), Field::to_string);
        let at = (0..given.len().max(self.params.len())).find(|&at| given.get(at) != self.params.get(at))?;
        let (given, taken) = (show(given.get(at)), show(self.params.get(at)));
        Some(format!("parameter {at}: the op gives {given}, the kernel takes {taken}"))
    }
}

/// The fields of a parameter struct.
fn fields(module: &Module, ty: Handle<Type>) -> Result<Vec<Field>, String> {
    let TypeInner::Struct { members, .. } = &module.types[ty].inner else {
        return Err("the parameters must be a struct".to_owned());
    };
    let field = |member: &naga::StructMember| {
        let name = member.name.clone().unwrap_or_default();
        let scalar = match module.types[member.ty].inner {
            TypeInner::Scalar(naga::Scalar { kind: ScalarKind::Uint, width: 4 }) => Scalar::U32,
            TypeInner::Scalar(naga::Scalar { kind: ScalarKind::Sint, width: 4 }) => Scalar::I32,
            TypeInner::Scalar(naga::Scalar { kind: ScalarKind::Float, width: 4 }) => Scalar::F32,
            _ => return Err(format!("the parameter `{name}` must be a u32, an i32 or an f32")),
        };
        Ok(Field { name: name.into(), scalar, offset: member.offset })
    };
    members.iter().map(field).collect()
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
            params: Vec::new(),
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
                (AddressSpace::Immediate, None) => {
                    reflection.params_bytes = size;
                    reflection.params = fields(&self.module, global.ty).map_err(invalid)?;
                }
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

    const VARIANT: Variant = Variant {
        halves: Vec::new(),
        storage: StorageType::F32,
        access: Access::Read,
        in_place: None,
        family: Family::Workgroup,
        consts: Vec::new(),
        epilogue: Vec::new(),
    };

    const SOURCE: &str = "
        struct Params { a: u32, b: f32, c: u32 }
        var<immediate> params: Params;
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @group(0) @binding(0) var<storage, read_write> z: array<vec4<f32>>;
        var<workgroup> tile: array<f32, 33>;
        var<workgroup> flag: u32;
        fn helper(i: u32) -> f32 { return x[i] * params.b; }
        @compute @workgroup_size(8, 4)
        fn first(@builtin(local_invocation_index) i: u32) {
            tile[i] = helper(i);
            workgroupBarrier();
            y[i] = tile[31u - i];
        }
        @compute @workgroup_size(64)
        fn second() { flag = 1u; z[0] = vec4(0.0); }
    ";

    fn kernel(entry: &'static str) -> Kernel {
        Kernel::new("inline", entry)
    }

    fn reflected(entry: &'static str, source: &str) -> Result<Reflection, ShaderError> {
        check(kernel(entry), &VARIANT, source.to_owned())?.reflect(kernel(entry))
    }

    #[test]
    fn reads_what_the_entry_point_uses_and_no_more() {
        let binding = |index, writable| Binding { index, writable };
        let field = |name, scalar, offset| Field { name: Cow::Borrowed(name), scalar, offset };
        let first = Reflection {
            bindings: vec![binding(0, false), binding(1, true)],
            params: vec![field("a", Scalar::U32, 0), field("b", Scalar::F32, 4), field("c", Scalar::U32, 8)],
            params_bytes: 12,
            workgroup_size: [8, 4, 1],
            workgroup_bytes: 144,
        };
        assert_eq!(reflected("first", SOURCE), Ok(first));
        let second = Reflection {
            bindings: vec![binding(0, true)],
            params: Vec::new(),
            params_bytes: 0,
            workgroup_size: [64, 1, 1],
            workgroup_bytes: 16,
        };
        assert_eq!(reflected("second", SOURCE), Ok(second));
    }

    #[test]
    fn parameters_are_compared_by_name_type_and_place() {
        let reflection = reflected("first", SOURCE).expect("valid");
        let given = |fields: &[(&'static str, Scalar, u32)]| {
            let field = |&(name, scalar, offset)| Field { name: Cow::Borrowed(name), scalar, offset };
            reflection.other_params(&fields.iter().map(field).collect::<Vec<_>>())
        };
        let [a, b, c] = [("a", Scalar::U32, 0), ("b", Scalar::F32, 4), ("c", Scalar::U32, 8)];
        assert_eq!(given(&[a, b, c]), None);
        let swapped = [("c", Scalar::U32, 0), b, ("a", Scalar::U32, 8)];
        let reason = "parameter 0: the op gives c: u32 at byte 0, the kernel takes a: u32 at byte 0";
        assert_eq!(given(&swapped).as_deref(), Some(reason));
        let reason = "parameter 1: the op gives b: u32 at byte 4, the kernel takes b: f32 at byte 4";
        assert_eq!(given(&[a, ("b", Scalar::U32, 4), c]).as_deref(), Some(reason));
        assert!(given(&[a, ("b", Scalar::F32, 8), c]).is_some_and(|reason| reason.starts_with("parameter 1")));
        assert!(given(&[a, b]).is_some_and(|reason| reason.contains("gives nothing more")));
        assert!(given(&[a, b, c, ("d", Scalar::U32, 12)]).is_some_and(|reason| reason.contains("takes nothing more")));
    }

    #[test]
    fn what_a_kernel_may_not_have_is_an_error() {
        let is_invalid = |entry, source| matches!(reflected(entry, source), Err(ShaderError::Invalid { .. }));
        assert!(is_invalid("third", SOURCE));
        assert!(is_invalid("main", "@compute @workgroup_size(1) fn main() { let x = y; }"));
        let uniform = "@group(0) @binding(0) var<uniform> u: vec4<f32>;
            @group(0) @binding(1) var<storage, read_write> y: array<f32>;
            @compute @workgroup_size(1) fn main() { y[0] = u.x; }";
        assert!(is_invalid("main", uniform));
        let vector = "struct Params { a: vec2<u32> }
            var<immediate> params: Params;
            @group(0) @binding(0) var<storage, read_write> y: array<u32>;
            @compute @workgroup_size(1) fn main() { y[0] = params.a.x; }";
        assert!(is_invalid("main", vector));
    }
}
