//! From a kernel and a variant to WGSL: the prelude, then the preprocessed file.

use std::fmt::{self, Write as _};

use super::preprocess::{Names, is_identifier, preprocess};
use super::{Access, EpilogueFunction, Family, HalfForm, Kernel, MatrixOperand, Variant};
use super::{fused, memory};
use crate::error::ShaderError;

/// Path below `shaders/` and text of every file, listed by the build script.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shader_files.rs"));

fn load(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

/// A file of WGSL: one of this crate, by its name, or one that an op of somebody else brings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WgslFile {
    name: &'static str,
    /// `None` where it is a file of this crate.
    text: Option<&'static str>,
}

impl WgslFile {
    /// A file that an op from outside this crate brings, say with `include_str!`. Its text may use what those in `shaders/` use:
    /// the types `Storage`, `Accum` and so on, the directives of the preprocessor, and imports of `shared/*.wgsl`.
    ///
    /// The name is a word of letters, digits and `_` that no file of this crate has. A file of elementwise functions becomes a part of
    /// the kernels that they are fused into: the names of all that it declares begin with the file's.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        WgslFile { name, text: Some(text) }
    }

    /// The file `shaders/<family>/<name>.wgsl` of this crate.
    pub const fn of_crate(name: &'static str) -> Self {
        WgslFile { name, text: None }
    }

    /// The name, without `.wgsl`.
    pub const fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn is_of_crate(self) -> bool {
        self.text.is_none()
    }

    /// Where the text is found. A file of this crate lies in the folder of its family: names of files are unique (`build.rs`).
    fn path(self) -> String {
        let in_crate = if self.is_of_crate() { path_in_crate(self.name) } else { None };
        in_crate.map_or_else(|| format!("{}.wgsl", self.name), str::to_owned)
    }

    /// Whether another file has the name of this one.
    pub(crate) fn clashes(self, other: WgslFile) -> bool {
        self.name == other.name && self != other
    }

    /// Why the file cannot be used together with these.
    fn refused(self, others: &[WgslFile]) -> Option<String> {
        if self.is_of_crate() {
            return None;
        }
        let name = self.name;
        if !is_identifier(name) {
            Some(format!("the file name `{name}` must be a word of letters, digits and `_`"))
        } else if path_in_crate(name).is_some() {
            Some(format!("a file of tightfit is named `{name}` too: give this one another name"))
        } else if others.iter().any(|&other| self.clashes(other)) {
            Some(format!("two files of different text are named `{name}`: give one of them another name"))
        } else {
            None
        }
    }
}

impl From<&'static str> for WgslFile {
    fn from(name: &'static str) -> Self {
        WgslFile::of_crate(name)
    }
}

impl fmt::Debug for WgslFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl fmt::Display for WgslFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn path_in_crate(name: &str) -> Option<&'static str> {
    let is_it = |path: &str| {
        let mut parts = path.strip_suffix(".wgsl").unwrap_or(path).rsplit('/');
        parts.next() == Some(name) && parts.next() != Some("shared")
    };
    FILES.iter().find(|(path, _)| is_it(path)).map(|(path, _)| *path)
}

/// The complete WGSL of one variant of a kernel's file.
///
/// # Errors
/// Where the file is missing, its name cannot be taken, or a directive in it is malformed.
pub fn source(kernel: Kernel, variant: &Variant) -> Result<String, ShaderError> {
    let mut files: Vec<_> = fused::files(&variant.epilogue).into_iter().collect();
    if !files.contains(&kernel.file) {
        files.push(kernel.file);
    }
    if let Some(reason) = files.iter().find_map(|file| file.refused(&files)) {
        return Err(ShaderError::Invalid { kernel: kernel.to_string(), reason });
    }
    let shared = (!variant.epilogue.is_empty()).then(|| "shared/fused.wgsl".to_owned());
    let shared = shared.into_iter().chain(memory::files(variant).into_iter().map(str::to_owned));
    let paths: Vec<_> = shared.chain(files.iter().map(|file| file.path())).collect();
    let brought = |path: &str| files.iter().find(|file| file.path() == path).and_then(|file| file.text);
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let text = |path: &str| brought(path).or_else(|| load(path));
    let body = preprocess(&paths, &names(kernel, variant), &text)? + &fused::text(variant);
    let body = match variant.access {
        Access::Read => body,
        Access::ReadWrite => make_read_write(&body),
    };
    Ok(prelude(variant) + &memory::rewrite(&body, variant))
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
    if has_f16_operands(variant) {
        names.defines.insert("F16_OPERANDS".to_owned());
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

/// Whether the kernel takes the type `f16`.
pub(super) fn uses_f16(variant: &Variant) -> bool {
    variant.halves.iter().any(|&(_, half)| half == HalfForm::NativeF16) || has_f16_operands(variant)
}

fn has_f16_operands(variant: &Variant) -> bool {
    matches!(variant.family, Family::Cooperative { operand: MatrixOperand::F16, .. })
}

/// Whether the kernel packs IEEE floats of 16 bits into words.
pub(super) fn packs_f16(variant: &Variant) -> bool {
    // The file has both formats.
    let rounds = |op: &EpilogueFunction| op.function.file == WgslFile::of_crate("round");
    variant.halves.iter().any(|&(_, half)| half == HalfForm::F16) || variant.epilogue.iter().any(rounds)
}

fn prelude(variant: &Variant) -> String {
    // `enable` must stand before everything else.
    let enable = if uses_f16(variant) { "enable f16;\n" } else { "" };
    let matrices = match variant.family {
        Family::Cooperative { .. } => "enable wgpu_cooperative_matrix;\n",
        Family::Workgroup | Family::Subgroup { .. } => "",
    };
    let mut prelude = format!(
        "{enable}{matrices}alias Storage = f32;\nalias Storage2 = vec2<Storage>;\nalias Storage4 = vec4<Storage>;\n\
         alias Accum = f32;\nalias Accum2 = vec2<f32>;\nalias Accum4 = vec4<f32>;\n"
    );
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
    use crate::shader::StorageType;

    const BIAS_ADD: Kernel = Kernel { file: WgslFile::of_crate("bias_add"), entry: "forward" };

    fn variant() -> Variant {
        Variant {
            storage: StorageType::F32,
            halves: Vec::new(),
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
                halves: vec![(0, HalfForm::NativeF16)],
                family: Family::Subgroup { size: 8 },
                consts: vec![("TILE_M", 32)],
                ..variant()
            },
        )
        .expect("bias_add is well formed");
        assert!(text.starts_with("enable f16;\nalias Storage = f32;\n"), "{text}");
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
        let missing = source(Kernel::new("nothing", "forward"), &variant());
        assert_eq!(missing, Err(ShaderError::Missing { path: "nothing.wgsl".to_owned() }));
    }

    #[test]
    fn an_op_may_bring_its_own_file() {
        let own = Kernel::new(WgslFile::new("own", "#import \"shared/index.wgsl\"\nfn own_twice() {}\n"), "forward");
        let text = source(own, &variant()).expect("well formed");
        assert!(text.contains("fn linear_invocation(") && text.ends_with("fn own_twice() {}\n"), "{text}");
        let wrong = source(Kernel::new(WgslFile::new("own", "a\n#else\n"), "forward"), &variant());
        assert!(wrong.is_err_and(|error| error.to_string().starts_with("own.wgsl:2: ")));
    }

    #[test]
    fn names_of_own_files_are_not_taken_twice() {
        let function = |file| EpilogueFunction { function: Kernel::new(file, "f"), operands: Vec::new(), settings: 0 };
        let reason = |kernel: WgslFile, epilogue: &[WgslFile]| {
            let epilogue = epilogue.iter().copied().map(function).collect();
            source(Kernel::new(kernel, "forward"), &Variant { epilogue, ..variant() })
                .map_err(|error| error.to_string())
        };
        let [own, other] = ["fn a() {}", "fn b() {}"].map(|text| WgslFile::new("own", text));
        let bias_add = WgslFile::of_crate("bias_add");
        assert!(reason(own, &[]).is_ok());
        assert_eq!(reason(own, &[own]).expect("fits").matches("fn a()").count(), 1);
        assert!(reason(bias_add, &[own, other]).is_err_and(|e| e.contains("different text")));
        assert!(reason(WgslFile::new("relu", ""), &[]).is_err_and(|e| e.contains("named `relu` too")));
        assert!(reason(WgslFile::new("two words", ""), &[]).is_err_and(|e| e.contains("must be a word")));
        assert!(reason(bias_add, &[WgslFile::new("", "")]).is_err_and(|e| e.contains("must be a word")));
    }
}
