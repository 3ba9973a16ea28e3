//! Epilogues of elementwise functions. Each function is written once, in the file of its op; here those of a variant are put together
//! to one function of a place, `fused`, which the kernel calls just before it writes its output (see `shaders/shared/fused.wgsl`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Kernel, Variant, WgslFile};

/// One function of an epilogue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpilogueFunction {
    /// The function `<file>_<entry>` of a file, of vectors of four elements and then of numbers.
    pub function: Kernel,
    /// The vectors.
    pub operands: Vec<Operand>,
    /// How many numbers: the next so many fields `setting_<k>` of the kernel's parameters.
    pub settings: u32,
}

/// Where an operand of an epilogue comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// What the one before makes, or for the first, the kernel.
    Value,
    /// The tensor at this binding.
    Tensor(u32),
    /// The tensor at this binding, which has a bit for each element: 1 where it is set, else 0.
    Bits(u32),
    /// A tensor whose memory the output takes over.
    Output,
}

/// The files that the functions are in.
pub(super) fn files(epilogue: &[EpilogueFunction]) -> BTreeSet<WgslFile> {
    epilogue.iter().map(|op| op.function.file).collect()
}

/// The numbers that the functions take altogether.
pub(super) fn settings(epilogue: &[EpilogueFunction]) -> u32 {
    epilogue.iter().map(|op| op.settings).sum()
}

/// The declarations of the operands, and the function `fused` that the kernel calls.
pub(super) fn text(variant: &Variant) -> String {
    let epilogue = &variant.epilogue;
    let Some(first) = epilogue.first() else { return String::new() };
    // A kernel that goes over single elements hands on four alike.
    let by_element = variant.consts.iter().any(|&(name, _)| name == "BY_ELEMENT");
    let element = if by_element { "Storage" } else { "Storage4" };
    let load = |name: &str| if by_element { format!("Accum4(Accum({name}[i]))") } else { format!("Accum4({name}[i])") };
    let mut text = String::new();
    let operands: BTreeSet<_> = epilogue.iter().flat_map(|op| &op.operands).collect();
    for operand in operands {
        let _ = match operand {
            Operand::Tensor(binding) => {
                writeln!(text, "@group(0) @binding({binding}) var<storage, read> operand_{binding}: array<{element}>;")
            }
            Operand::Bits(binding) => {
                writeln!(text, "@group(0) @binding({binding}) var<storage, read> bits_{binding}: array<u32>;")
            }
            Operand::Value | Operand::Output => Ok(()),
        };
    }
    let value = if first.operands.contains(&Operand::Value) { "value: Accum4, " } else { "" };
    let _ = writeln!(text, "fn fused({value}i: u32) -> Accum4 {{");
    let (mut last, mut setting) = ("value".to_owned(), 0);
    for (number, op) in epilogue.iter().enumerate() {
        let mut arguments: Vec<String> = Vec::new();
        for operand in &op.operands {
            arguments.push(match operand {
                Operand::Value => format!("rounded({last})"),
                Operand::Tensor(binding) => load(&format!("operand_{binding}")),
                Operand::Bits(binding) if by_element => format!("bit_of(bits_{binding}[i >> 5u], i)"),
                Operand::Bits(binding) => format!("bits_of(bits_{binding}[i >> 3u], i)"),
                Operand::Output => load("output"),
            });
        }
        arguments.extend((setting..setting + op.settings).map(|setting| format!("params.setting_{setting}")));
        setting += op.settings;
        last = format!("value_{number}");
        let Kernel { file, entry } = op.function;
        let _ = writeln!(text, "    let {last} = {file}_{entry}({});", arguments.join(", "));
    }
    let _ = writeln!(text, "    return {last};\n}}");
    text
}
