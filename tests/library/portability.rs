//! Every kernel, in every variant that the engine can ask for, validates with naga, declares what its op binds, and
//! translates to SPIR-V, MSL, HLSL and GLSL. Needs no GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Command;
use std::sync::LazyLock;

use naga::back::{glsl, hlsl, msl, spv};
use naga::valid::Capabilities;
use naga::{Module, ShaderStage};
use tightfit::error::OpError;
use tightfit::graph::{Graph, Node};
use tightfit::ops::{Backward, Builder as _, Dispatch, SavedActivations};
use tightfit::shader::{Family, HalfForm, Kernel, MatrixOperand, StorageType, Target, Tiles, Variant};
use tightfit::tensor::{DType, TensorDesc, ValueId};
use tightfit::testing::{self, Case, Checked, Reflection};

use crate::custom_op::swish;

/// What naga cannot write, with the reason. Nothing else is left out.
struct Limitation {
    backend: Backend,
    applies: fn(&Variant) -> bool,
    reason: &'static str,
}

const LIMITATIONS: &[Limitation] = &[
    Limitation {
        backend: Backend::Glsl,
        applies: has_f16,
        reason: "naga 30's GLSL writer has no 16-bit floats; no GL adapter offers SHADER_F16, so nothing asks for these",
    },
    Limitation {
        backend: Backend::Glsl,
        applies: |variant| variant.storage == StorageType::F32Words,
        reason: "naga 30's GLSL writer has no 64-bit integers; only Vulkan's software devices are given such kernels",
    },
    Limitation {
        backend: Backend::Glsl,
        applies: |variant| matches!(variant.family, Family::Cooperative { .. }),
        reason: "naga 30's GLSL writer has no cooperative matrices, nor has a GL adapter",
    },
    Limitation {
        backend: Backend::Hlsl,
        applies: |variant| matches!(variant.family, Family::Cooperative { .. }),
        reason: "naga 30's HLSL writer has no cooperative matrices, nor has a DX12 adapter",
    },
];

fn has_f16(variant: &Variant) -> bool {
    variant.halves.iter().any(|&(_, half)| half == HalfForm::NativeF16)
}

/// Each family, and every tile of products without subgroups: with them the tests have those of large products.
fn targets() -> Vec<Target> {
    let family = Family::Workgroup;
    let mut targets = vec![
        Target::new(family),
        Target::new(Family::Subgroup { size: 8 }),
        Target { short_code: true, ..Target::new(Family::Subgroup { size: 4 }) },
    ];
    let operands = [MatrixOperand::F32, MatrixOperand::F16];
    let units = operands.into_iter().flat_map(|operand| [8, 16].map(|size| Family::Cooperative { size, operand }));
    targets.extend(units.map(Target::new));
    // Those between differ from them in numbers only.
    let tiles = family.tiles();
    let ends = [tiles[0], tiles[tiles.len() - 1]];
    targets.extend(ends.map(|tile| Target { tiles: Tiles::all(tile), ..Target::new(family) }));
    targets
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    SpirV,
    Msl,
    Hlsl,
    Glsl,
}

/// All nodes that a case gives rise to: its own, and those of its backward for each set of gradients that it takes.
fn nodes(case: &Case) -> Vec<(Graph, usize)> {
    let kept = BTreeSet::new();
    let build = |gradients: Option<Vec<bool>>, saved: SavedActivations| {
        let op =
            case.op.compressed().filter(|_| saved == SavedActivations::Compressed).unwrap_or_else(|| case.op.clone());
        let mut graph = Graph::new();
        let descs = case.inputs.iter().map(|(desc, _)| desc.clone());
        let inputs: Vec<ValueId> = descs.enumerate().map(|(i, desc)| graph.input(format!("input{i}"), desc)).collect();
        let outputs = tightfit::ops::Builder::apply(&mut graph, op.clone(), &inputs)
            .unwrap_or_else(|error| panic!("{}/{}: {error}", case.op.name(), case.name));
        let Some(arrives) = gradients else { return Some(graph) };
        let grad_outputs: Vec<Option<ValueId>> = outputs
            .iter()
            .zip(arrives)
            .enumerate()
            .map(|(i, (&output, arrives))| {
                let desc = graph.desc(output).clone();
                (arrives && desc.dtype != DType::U32).then(|| graph.input(format!("grad_output{i}"), desc))
            })
            .collect();
        if grad_outputs.iter().all(Option::is_none) {
            return None;
        }
        let forward = Backward {
            inputs: &inputs,
            outputs: &outputs,
            grad_outputs: &grad_outputs,
            wanted: &case.wanted,
            saved,
            kept: &kept,
        };
        match op.backward(&mut graph, &forward) {
            Ok(_) => Some(graph),
            // An output that is only saved for backward gets no gradient.
            Err(OpError::NotDifferentiable { .. }) => None,
            Err(error) => panic!("backward of {}/{}: {error}", case.op.name(), case.name),
        }
    };
    let forward = build(None, SavedActivations::Full).expect("always built");
    let outputs = forward.nodes()[0].outputs.len();
    let mut graphs = vec![forward];
    if case.wanted.contains(&true) {
        let subset = |bits: u32| (0..outputs).map(|i| bits >> i & 1 == 1).collect();
        for saved in [SavedActivations::Full, SavedActivations::Compressed] {
            graphs.extend((1u32..1 << outputs).filter_map(|bits| build(Some(subset(bits)), saved)));
        }
        assert!(graphs.len() > 1, "no gradient reaches {}/{}", case.op.name(), case.name);
    }
    graphs.into_iter().flat_map(|graph| (0..graph.nodes().len()).map(move |node| (graph.clone(), node))).collect()
}

/// Everything compiled so far, once per kernel and variant.
#[derive(Default)]
struct Compiled {
    modules: BTreeMap<(Kernel, Variant), (Checked, Reflection)>,
    failures: Vec<String>,
}

impl Compiled {
    fn reflection(&mut self, kernel: Kernel, variant: &Variant) -> Option<&Reflection> {
        let key = (kernel, variant.clone());
        if !self.modules.contains_key(&key) {
            let checked = testing::module(kernel, variant);
            match checked.and_then(|checked| checked.reflect(kernel).map(|reflection| (checked, reflection))) {
                Ok(found) => {
                    self.modules.insert(key.clone(), found);
                }
                Err(error) => {
                    self.failures.push(format!("{variant:?}: {error}"));
                    return None;
                }
            }
        }
        self.modules.get(&key).map(|(_, reflection)| reflection)
    }
}

fn check_dispatch(
    node: &Node,
    [inputs, outputs]: [&[TensorDesc]; 2],
    dispatch: &Dispatch,
    case: &str,
    compiled: &mut Compiled,
) {
    for variant in dispatch.variants(&*node.op, inputs, outputs) {
        let Some(reflection) = compiled.reflection(dispatch.kernel, &variant) else { continue };
        if let Err(reason) = dispatch.check(node.op.as_ref(), &variant, reflection) {
            let kernel = dispatch.kernel;
            compiled.failures.push(format!("{kernel} for {} ({case}) as {variant:?}: {reason}", node.op.name()));
        }
    }
}

/// Every (kernel, variant) of every op, checked against the launches that use it. Both tests read it.
static COMPILED: LazyLock<Compiled> = LazyLock::new(compile_all);

fn compile_all() -> Compiled {
    let mut compiled = Compiled::default();
    // The last ops are from outside the crate.
    for entry in testing::all_ops().into_iter().chain(swish::ENTRIES) {
        for case in (entry.cases)() {
            for (graph, at) in nodes(&case) {
                let node = &graph.nodes()[at];
                let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.desc(id).clone()).collect::<Vec<TensorDesc>>();
                let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
                for target in targets() {
                    for dispatch in node.op.dispatches(&inputs, &outputs, &target) {
                        let case = format!("{}/{}", entry.name, case.name);
                        check_dispatch(node, [&inputs, &outputs], &dispatch, &case, &mut compiled);
                    }
                }
            }
        }
    }
    compiled.failures.dedup();
    compiled
}

#[test]
fn every_kernel_validates_and_declares_what_its_op_binds() {
    let compiled = &*COMPILED;
    println!("{} kernels and variants", compiled.modules.len());
    assert!(!compiled.modules.is_empty());
    assert!(compiled.failures.is_empty(), "{}", compiled.failures.join("\n"));
}

#[test]
fn every_kernel_translates_to_every_language() {
    let compiled = &*COMPILED;
    let spirv_val = Command::new("spirv-val").arg("--version").output().is_ok();
    if !spirv_val {
        println!("spirv-val is not installed: SPIR-V is written but not validated");
    }
    let modules: Vec<_> = compiled.modules.iter().collect();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let results: Vec<_> = std::thread::scope(|scope| {
        let parts = modules.chunks(modules.len().div_ceil(threads).max(1));
        let running: Vec<_> = parts.map(|part| scope.spawn(move || translate_all(part, spirv_val))).collect();
        running.into_iter().map(|part| part.join().expect("no panic")).collect()
    });
    let written: usize = results.iter().map(|(written, _)| written).sum();
    let failures: Vec<_> = results.into_iter().flat_map(|(_, failures)| failures).collect();
    println!("{written} translations of {} kernels and variants", compiled.modules.len());
    for Limitation { backend, reason, .. } in LIMITATIONS {
        println!("left out for {backend:?}: {reason}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Workgroup memory is not zeroed where the family says that it need not be.
#[test]
fn workgroup_memory_is_written_before_it_is_read() {
    let (mut writes_first, mut needs_zeros) = (0, 0);
    for ((kernel, variant), (checked, reflection)) in &COMPILED.modules {
        if reflection.workgroup_bytes == 0 {
            continue;
        }
        let entry = checked.module.entry_points.iter().find(|entry| entry.name == kernel.entry).expect("it is checked");
        let read_first = crate::access_order::read_first(&checked.module, entry);
        if read_first.is_empty() {
            writes_first += 1;
        } else {
            let family = variant.family;
            assert!(
                family.needs_zeroed_workgroup_memory(),
                "{kernel} {variant:?} reads {read_first:?} before it writes them"
            );
            needs_zeros += 1;
        }
    }
    // The second shows that such reads are found.
    assert!(writes_first > 0 && needs_zeros > 0, "{writes_first} {needs_zeros}");
}

/// A kernel in one variant, and what it became.
type CheckedModule<'a> = (&'a (Kernel, Variant), &'a (Checked, Reflection));

/// Translates modules to every language; returns how many translations were written, and what went wrong.
fn translate_all(modules: &[CheckedModule<'_>], spirv_val: bool) -> (usize, Vec<String>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut written, mut failures) = (0, Vec::new());
    for ((kernel, variant), (checked, _)) in modules {
        for backend in [Backend::SpirV, Backend::Msl, Backend::Hlsl, Backend::Glsl] {
            if LIMITATIONS.iter().any(|limit| limit.backend == backend && (limit.applies)(variant)) {
                continue;
            }
            match translate(backend, checked, kernel.entry, variant) {
                Ok(output) => {
                    written += 1;
                    // Many an installed spirv-val is older than the extension for matrices.
                    let knows = !matches!(variant.family, Family::Cooperative { .. });
                    if backend == Backend::SpirV && spirv_val && knows {
                        let file = folder.path().join("module.spv");
                        let refused = validate_spirv(&file, &output).err();
                        failures.extend(refused.map(|error| format!("{kernel} {variant:?}: {error}")));
                    }
                }
                Err(error) => failures.push(format!("{kernel} {variant:?} to {backend:?}: {error}")),
            }
        }
    }
    (written, failures)
}

fn validate_spirv(file: &std::path::Path, words: &[u8]) -> Result<(), String> {
    let mut out = std::fs::File::create(file).map_err(|e| e.to_string())?;
    out.write_all(words).map_err(|e| e.to_string())?;
    let run = Command::new("spirv-val").args(["--target-env", "vulkan1.2"]).arg(file).output();
    let run = run.map_err(|e| e.to_string())?;
    if run.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&run.stderr).into_owned()) }
}

/// Translates one entry point as wgpu's back ends would: the module is first reduced to it.
fn translate(backend: Backend, checked: &Checked, entry: &str, variant: &Variant) -> Result<Vec<u8>, String> {
    let supported = match backend {
        Backend::SpirV => spv::supported_capabilities(),
        Backend::Msl => msl::supported_capabilities(),
        Backend::Hlsl => hlsl::supported_capabilities(),
        Backend::Glsl => glsl::supported_capabilities(),
    };
    let missing = checked.capabilities - supported;
    if missing != Capabilities::empty() {
        return Err(format!("{missing:?} is not supported"));
    }
    let stage = ShaderStage::Compute;
    let (module, info) = naga::back::pipeline_constants::process_overrides(
        &checked.module,
        &checked.info,
        Some((stage, entry)),
        &Default::default(),
    )
    .map_err(|e| e.to_string())?;
    let entry_point = Some((stage, entry.to_owned()));
    let is_zeroed = variant.family.needs_zeroed_workgroup_memory();
    match backend {
        Backend::SpirV => {
            let zero_initialize_workgroup_memory = if is_zeroed {
                spv::ZeroInitializeWorkgroupMemoryMode::Polyfill
            } else {
                spv::ZeroInitializeWorkgroupMemoryMode::None
            };
            let options = spv::Options { lang_version: (1, 3), zero_initialize_workgroup_memory, ..Default::default() };
            let pipeline = spv::PipelineOptions { shader_stage: stage, entry_point: entry.to_owned() };
            let words = spv::write_vec(&module, &info, &options, Some(&pipeline)).map_err(|e| e.to_string())?;
            Ok(bytemuck::cast_slice(&words).to_vec())
        }
        Backend::Msl => {
            let options = msl::Options {
                lang_version: (2, 4),
                per_entry_point_map: [(entry.to_owned(), msl_resources(&module))].into(),
                fake_missing_bindings: false,
                zero_initialize_workgroup_memory: is_zeroed,
                ..Default::default()
            };
            let pipeline = msl::PipelineOptions { entry_point, ..Default::default() };
            let (text, translation) =
                msl::write_string(&module, &info, &options, &pipeline).map_err(|e| e.to_string())?;
            translation.entry_point_names.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
            Ok(text.into_bytes())
        }
        Backend::Hlsl => {
            // Half floats need 6.2, wave operations 6.0.
            let shader_model = match variant.family {
                _ if has_f16(variant) => hlsl::ShaderModel::V6_2,
                Family::Subgroup { .. } => hlsl::ShaderModel::V6_0,
                _ => hlsl::ShaderModel::V5_1,
            };
            let options = hlsl::Options {
                shader_model,
                immediates_target: Some(hlsl::BindTarget { space: 1, ..Default::default() }),
                special_constants_binding: Some(hlsl::BindTarget { space: 2, ..Default::default() }),
                zero_initialize_workgroup_memory: is_zeroed,
                force_loop_bounding: false,
                ..Default::default()
            };
            let pipeline = hlsl::PipelineOptions { entry_point };
            let mut text = String::new();
            let written = hlsl::Writer::new(&mut text, &options, &pipeline)
                .write(&module, &info, None)
                .map_err(|e| e.to_string())?;
            written.entry_point_names.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
            // FXC compiles `shared_a = (float4[256])0` as a thousand stores.
            let mut shared =
                text.lines().filter_map(|line| line.strip_prefix("groupshared ")?.split([' ', '[']).nth(1));
            match shared.find(|name| text.contains(&format!(" {name} = ("))) {
                Some(name) => Err(format!("workgroup memory `{name}` is zeroed")),
                None => Ok(text.into_bytes()),
            }
        }
        Backend::Glsl => {
            let options = glsl::Options {
                version: glsl::Version::new_gles(310),
                writer_flags: glsl::WriterFlags::empty(),
                binding_map: glsl_bindings(&module),
                zero_initialize_workgroup_memory: is_zeroed,
            };
            let pipeline =
                glsl::PipelineOptions { shader_stage: stage, entry_point: entry.to_owned(), multiview: None };
            let mut text = String::new();
            glsl::Writer::new(&mut text, &module, &info, &options, &pipeline, Default::default())
                .and_then(|mut writer| writer.write())
                .map_err(|e| e.to_string())?;
            Ok(text.into_bytes())
        }
    }
}

fn resource_bindings(module: &Module) -> impl Iterator<Item = naga::ResourceBinding> + '_ {
    module.global_variables.iter().filter_map(|(_, global)| global.binding)
}

fn msl_resources(module: &Module) -> msl::EntryPointResources {
    let target = |slot: u32| msl::BindTarget { buffer: Some(slot as u8), mutable: true, ..Default::default() };
    msl::EntryPointResources {
        resources: resource_bindings(module).map(|binding| (binding, target(binding.binding))).collect(),
        immediates_buffer: Some(29),
        sizes_buffer: Some(30),
    }
}

fn glsl_bindings(module: &Module) -> glsl::BindingMap {
    resource_bindings(module).map(|binding| (binding, binding.binding as u8)).collect()
}
