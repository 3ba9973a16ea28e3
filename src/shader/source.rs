//! From a kernel and a variant to WGSL: the prelude, then the preprocessed file.

use std::fmt::Write as _;

use super::preprocess::{Names, preprocess};
use super::{Access, Family, Kernel, StorageType, Variant};
use super::{fused, wide};
use crate::error::ShaderError;

/// Path below `shaders/` and text of every file, listed by the build script.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shader_files.rs"));

fn load(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

/// The path of an op's file, which lies in the folder of its family: names of files are unique (`build.rs`).
pub(super) fn path(file: &str) -> String {
    let is_it = |path: &str| {
        let mut parts = path.strip_suffix(".wgsl").unwrap_or(path).rsplit('/');
        parts.next() == Some(file) && parts.next() != Some("shared")
    };
    FILES.iter().find(|(path, _)| is_it(path)).map_or_else(|| format!("{file}.wgsl"), |(path, _)| (*path).to_owned())
}

/// The complete WGSL of one variant of a kernel's file.
///
/// # Errors
/// Where the file is missing or a directive in it is malformed.
pub fn source(kernel: Kernel, variant: &Variant) -> Result<String, ShaderError> {
    let file = path(kernel.file);
    let functions = fused::files(&variant.epilogue);
    let paths: Vec<_> = functions.iter().chain([&file]).map(String::as_str).collect();
    let body = preprocess(&paths, &names(kernel, variant), &load)? + &fused::text(variant);
    let body = match variant.access {
        Access::Read => body,
        Access::ReadWrite => make_read_write(&body),
    };
    let body = if variant.storage == StorageType::F32Words { wide::make_wide(&body) } else { body };
    Ok(prelude(variant) + &body)
}

fn names(kernel: Kernel, variant: &Variant) -> Names {
    let mut names = Names::default();
    names.defines.insert(format!("ENTRY_{}", kernel.entry));
    if let Some(input) = variant.in_place {
        names.defines.insert("IN_PLACE".to_owned());
        names.defines.insert(format!("IN_PLACE_{input}"));
    }
    if variant.access == Access::ReadWrite {
        names.defines.insert("READ_WRITE".to_owned());
    }
    if let Family::Subgroup { size } = variant.family {
        names.defines.insert("SUBGROUPS".to_owned());
        names.consts.insert("SUBGROUP_SIZE".to_owned(), size);
    }
    if !variant.epilogue.is_empty() {
        names.defines.insert("FUSED".to_owned());
    }
    names.consts.insert("SETTINGS".to_owned(), fused::settings(&variant.epilogue));
    // A constant that is given at all also counts as defined: flags of an op are constants like the others.
    names.defines.extend(variant.consts.iter().map(|&(name, _)| name.to_owned()));
    names.consts.extend(variant.consts.iter().map(|&(name, value)| (name.to_owned(), value)));
    names
}

fn prelude(variant: &Variant) -> String {
    // `enable` must stand before everything else.
    let (enable, storage) = match variant.storage {
        StorageType::F32 | StorageType::F32Words => ("", "f32"),
        StorageType::F16 => ("enable f16;\n", "f16"),
    };
    let matrices = match variant.family {
        Family::Cooperative { .. } => "enable wgpu_cooperative_matrix;\n",
        Family::Workgroup | Family::Subgroup { .. } => "",
    };
    let mut prelude = format!(
        "{enable}{matrices}alias Storage = {storage};\nalias Storage2 = vec2<Storage>;\nalias Storage4 = vec4<Storage>;\n\
         alias Accum = f32;\nalias Accum2 = vec2<f32>;\nalias Accum4 = vec4<f32>;\n"
    );
    if variant.storage == StorageType::F32Words {
        prelude.push_str(wide::PRELUDE);
    }
    if let Family::Subgroup { size } = variant.family {
        let _ = writeln!(prelude, "const SUBGROUP_SIZE = {size}u;");
    }
    for (name, value) in &variant.consts {
        let _ = writeln!(prelude, "const {name} = {value}u;");
    }
    prelude
}

/// Turns every `var<storage, read>` into `var<storage, read_write>`.
fn make_read_write(text: &str) -> String {
    const START: &str = "var<storage";
    let mut output = String::with_capacity(text.len() + 256);
    let mut rest = text;
    while let Some(at) = rest.find(START) {
        let after = at + START.len();
        let Some(close) = rest[after..].find('>') else { break };
        let access = rest[after..after + close].trim_start_matches([',', ' ']).trim_end();
        output.push_str(&rest[..after]);
        // `var<storage>` alone means read too.
        output.push_str(if access.is_empty() || access == "read" {
            ", read_write"
        } else {
            &rest[after..after + close]
        });
        rest = &rest[after + close..];
    }
    output + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIAS_ADD: Kernel = Kernel { file: "bias_add", entry: "forward" };

    fn variant() -> Variant {
        Variant {
            storage: StorageType::F32,
            access: Access::Read,
            in_place: None,
            family: Family::Workgroup,
            consts: Vec::new(),
            epilogue: Vec::new(),
        }
    }

    #[test]
    fn prelude_starts_with_enable() {
        let text = source(
            BIAS_ADD,
            &Variant {
                storage: StorageType::F16,
                family: Family::Subgroup { size: 8 },
                consts: vec![("TILE_M", 32)],
                ..variant()
            },
        )
        .expect("bias_add is well formed");
        assert!(text.starts_with("enable f16;\nalias Storage = f16;\n"), "{text}");
        assert!(text.contains("const SUBGROUP_SIZE = 8u;\nconst TILE_M = 32u;\n"), "{text}");
    }

    #[test]
    fn read_write_rewrites_every_spelling() {
        let text =
            "var<storage> a; var<storage,read> b; var<storage, read> c; var<storage, read_write> d; var<workgroup> e;";
        assert_eq!(
            make_read_write(text),
            "var<storage, read_write> a; var<storage, read_write> b; var<storage, read_write> c; \
             var<storage, read_write> d; var<workgroup> e;"
        );
    }

    #[test]
    fn in_place_drops_the_input() {
        let text = source(BIAS_ADD, &Variant { in_place: Some(0), ..variant() }).expect("bias_add is well formed");
        assert!(!text.contains("input: array<Storage4>;\n@group(0) @binding(1) var<storage, read> bias"), "{text}");
        assert!(text.contains("Accum4(output[i])"), "{text}");
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let missing = source(Kernel { file: "nothing", entry: "forward" }, &variant());
        assert_eq!(missing, Err(ShaderError::Missing { path: "nothing.wgsl".to_owned() }));
    }
}
