//! One kernel launch, as an op describes it: no addresses, no device.

use crate::ops::{Elementwise, KernelParams};
use crate::shader::{Access, EpilogueFunction, Family, HalfForm, Kernel, Operand, StorageType, Variant, WgslFile};
use crate::tensor::DType;

/// The most loop iterations one invocation may make in total: beyond it Mesa's lavapipe computes wrong results
/// without a word.
pub const MAX_LOOP_ITERATIONS: u64 = 65_535;

/// Workgroups in one dimension that every device takes.
pub(super) const MAX_GRID: u32 = 65_535;
/// Storage buffers that a kernel may bind on every device.
pub(super) const MAX_BINDINGS: usize = 8;
/// Bytes of parameters that a kernel may have on every device.
pub(super) const MAX_PARAMS_BYTES: usize = 128;

/// What is bound to one binding of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Input of the op.
    Input(usize),
    /// Output of the op.
    Output(usize),
    /// Workspace of the op.
    Workspace(usize),
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// File and entry point.
    pub kernel: Kernel,
    /// Which body of the kernel: workgroup memory or subgroups.
    pub family: Family,
    /// Constants of the prelude (`const TILE_M = 32u;`).
    pub consts: Vec<(&'static str, u32)>,
    /// Elementwise functions that the kernel computes on the way to its output.
    pub epilogue: Vec<EpilogueFunction>,
    /// What binding 0, 1, 2… is bound to.
    pub bindings: Vec<Slot>,
    /// The kernel's parameters.
    pub params: KernelParams,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Most loop iterations of one invocation; 0 where there is no loop.
    pub iterations: u64,
    /// Flops that the kernel spends, with tiles rounded up; 0 where [`Op::cost`](crate::ops::Op::cost) says it well enough.
    pub flops: u64,
}

impl Dispatch {
    /// A launch of the entry point of a file with these bindings. A name alone is that of a file of this crate.
    pub fn new(file: impl Into<WgslFile>, entry: &'static str, bindings: impl Into<Vec<Slot>>) -> Self {
        Dispatch {
            kernel: Kernel { file: file.into(), entry },
            family: Family::Workgroup,
            consts: Vec::new(),
            epilogue: Vec::new(),
            bindings: bindings.into(),
            params: KernelParams::default(),
            grid: [1, 1, 1],
            iterations: 0,
            flops: 0,
        }
    }

    /// Sets the kernel's parameters: [`KernelParams`], or a reference to a struct that [`params!`](crate::params!) declares.
    #[must_use]
    pub fn params(mut self, params: impl Into<KernelParams>) -> Self {
        self.params = params.into();
        self
    }

    /// Chooses the family of the kernel's body.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// Adds a constant to the prelude.
    #[must_use]
    pub fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.consts.push((name, value));
        self
    }

    /// Adds a constant 1 for each of these names that is set: conditions of the kernel's file.
    #[must_use]
    pub fn flags(mut self, flags: impl IntoIterator<Item = (&'static str, bool)>) -> Self {
        self.consts.extend(flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, 1)));
        self
    }

    /// Launches `workgroups` in one line, folded into two dimensions where a device would refuse so many: the kernel
    /// takes its number from `linear_workgroup` (`shared/index.wgsl`), which may run past the end.
    #[must_use]
    pub fn linear(mut self, workgroups: usize) -> Self {
        let count = (workgroups as u64).max(1);
        let rows = count.div_ceil(MAX_GRID.into());
        self.grid = [count.div_ceil(rows) as u32, rows as u32, 1];
        self
    }

    /// States what the kernel spends where it computes more than asked for.
    #[must_use]
    pub(in crate::ops) fn flops(mut self, flops: u64) -> Self {
        self.flops = flops;
        self
    }

    /// Has the kernel compute one elementwise function more before it writes its output: of tensors, and where an operand is
    /// `None`, of what it would have written. Its file says where (`shaders/shared/fused.wgsl`).
    pub(in crate::ops) fn fuse(
        &mut self,
        function: &Elementwise,
        operands: impl IntoIterator<Item = Option<(Slot, DType)>>,
    ) {
        let bind = |operand: Option<(Slot, DType)>| {
            let Some((slot, dtype)) = operand else { return Operand::Value };
            let bound = self.bindings.iter().position(|&bound| bound == slot).unwrap_or_else(|| {
                self.bindings.push(slot);
                self.bindings.len() - 1
            }) as u32;
            if dtype == DType::U32 { Operand::Bits(bound) } else { Operand::Tensor(bound) }
        };
        let operands = operands.into_iter().map(bind).collect();
        let before = self.epilogue.iter().map(|op| op.settings).sum::<u32>();
        for (number, &setting) in (before..).zip(&function.settings) {
            self.params.push(format!("setting_{number}"), setting);
        }
        let settings = function.settings.len() as u32;
        self.epilogue.push(EpilogueFunction { function: function.function, operands, settings });
    }

    /// Whether it writes output 0 of the op, or reads it.
    pub(in crate::ops) fn makes_output(&self) -> bool {
        self.bindings.contains(&Slot::Output(0))
    }

    /// How the kernel must be compiled for this launch. `in_place` is the pair (input, output) of the op that shares
    /// memory; `half` says which of its tensors are of 16 bits.
    pub fn variant(
        &self,
        storage: StorageType,
        half: &dyn Fn(Slot) -> Option<HalfForm>,
        access: Access,
        in_place: Option<(usize, usize)>,
    ) -> Variant {
        let in_place = self.in_place_input(in_place);
        let mut epilogue = self.epilogue.clone();
        if let Some(input) = in_place {
            let place = self.bindings.iter().position(|&slot| slot == Slot::Input(input));
            for operand in epilogue.iter_mut().flat_map(|fuse| &mut fuse.operands) {
                if let Operand::Tensor(binding) = *operand
                    && place == Some(binding as usize)
                {
                    *operand = Operand::Output;
                }
            }
        }
        let halves = (0..).zip(&self.bindings).filter_map(|(binding, &slot)| Some((binding, half(slot)?))).collect();
        Variant { storage, halves, access, in_place, family: self.family, consts: self.consts.clone(), epilogue }
    }

    /// The input that this launch leaves unbound, because it reads its output's memory instead. A launch that does not
    /// bind both of the pair is compiled as usual, and binds the input if it names it.
    pub fn in_place_input(&self, in_place: Option<(usize, usize)>) -> Option<usize> {
        let binds = |slot| self.bindings.contains(&slot);
        in_place
            .filter(|&(input, output)| binds(Slot::Input(input)) && binds(Slot::Output(output)))
            .map(|(input, _)| input)
    }

    /// States the most loop iterations that one invocation makes.
    ///
    /// # Panics
    /// Where that is more than [`MAX_LOOP_ITERATIONS`]: the op must split the work further.
    #[must_use]
    pub fn loops(mut self, iterations: usize) -> Self {
        assert!(
            iterations as u64 <= MAX_LOOP_ITERATIONS,
            "bug: {}.{} would loop {iterations} times in one invocation",
            self.kernel.file,
            self.kernel.entry
        );
        self.iterations = iterations as u64;
        self
    }
}
