//! Comparisons, as numbers.

use crate::error::OpError;
use crate::native::Level;
use crate::ops::elementwise::formula::{self, Formula};
use crate::ops::elementwise::pairs;
use crate::ops::onnx;
use crate::ops::{Backward, Builder, Call, Case, Elements, Elementwise, Fill, Op, Real, expect_count, expect_dtype};
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = 1 where a relation b, else 0`
///
/// | tensor | shape |
/// |---|---|
/// | a | any |
/// | b | as a; none where a is compared with a number |
/// | output | as a |
///
/// **Saved for backward:** nothing, for there is no gradient. **In place:** over either input.
/// **Numerics:** exact. NaN is not equal to anything, and neither less nor greater.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.gt.html> and those beside it
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compare {
    /// What is asked.
    pub relation: Relation,
    /// What a is compared with, in place of b.
    pub number: Option<f32>,
}

/// What a [`Compare`] asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `a > b`
    Greater,
    /// `a ≥ b`
    GreaterEqual,
    /// `a < b`
    Less,
    /// `a ≤ b`
    LessEqual,
    /// `a = b`
    Equal,
    /// `a ≠ b`
    NotEqual,
}

impl Relation {
    /// All of them.
    pub const ALL: [Relation; 6] = [
        Relation::Greater,
        Relation::GreaterEqual,
        Relation::Less,
        Relation::LessEqual,
        Relation::Equal,
        Relation::NotEqual,
    ];

    /// PyTorch's name of it, as of the functions of the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Relation::Greater => "gt",
            Relation::GreaterEqual => "ge",
            Relation::Less => "lt",
            Relation::LessEqual => "le",
            Relation::Equal => "eq",
            Relation::NotEqual => "ne",
        }
    }

    /// The function of a tensor and a number.
    fn with_number(self) -> &'static str {
        match self {
            Relation::Greater => "gt_number",
            Relation::GreaterEqual => "ge_number",
            Relation::Less => "lt_number",
            Relation::LessEqual => "le_number",
            Relation::Equal => "eq_number",
            Relation::NotEqual => "ne_number",
        }
    }

    #[inline(always)]
    fn holds<T: Real>(self, a: T, b: T) -> T {
        let holds = match self {
            Relation::Greater => a > b,
            Relation::GreaterEqual => a >= b,
            Relation::Less => a < b,
            Relation::LessEqual => a <= b,
            Relation::Equal => a == b,
            Relation::NotEqual => a != b,
        };
        if holds { T::ONE } else { T::ZERO }
    }
}

impl Op for Compare {
    fn name(&self) -> &'static str {
        "compare"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let operator = match self.relation {
            Relation::Greater => "Greater",
            Relation::GreaterEqual => "GreaterOrEqual",
            Relation::Less => "Less",
            Relation::LessEqual => "LessOrEqual",
            Relation::Equal | Relation::NotEqual => "Equal",
        };
        let a = call.input(0);
        let b = match self.number {
            Some(number) => call.number(number),
            None => call.input(1),
        };
        let mut holds = call.apply(operator, &[&a, &b]);
        if self.relation == Relation::NotEqual {
            holds = call.apply("Not", &[&holds]);
        }
        Some(vec![call.node("Cast", &[&holds], [("to", 1.into())])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        if self.number.is_none() {
            return pairs::outputs("compare", inputs);
        }
        expect_count("compare", inputs, 1)?;
        expect_dtype("compare", "a", &inputs[0], DType::F32)?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        Ok(vec![None; forward.inputs.len()])
    }

    fn stops_gradients(&self) -> bool {
        true
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        if self.number.is_some() { &[(0, 0)] } else { pairs::IN_PLACE }
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(match self.number {
            None => Elementwise::new("compare", self.relation.name(), []),
            Some(number) => Elementwise::new("compare", self.relation.with_number(), [number]),
        })
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

impl Compare {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        match self.number {
            None => formula::twin::<T, 2>(*self, call),
            Some(_) => formula::twin::<T, 1>(*self, call),
        }
    }
}

impl Elements for Compare {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        match self.number {
            None => formula::elements::<2>(*self, level, operands, output),
            Some(_) => formula::elements::<1>(*self, level, operands, output),
        }
    }
}

impl Formula<2> for Compare {
    #[inline(always)]
    fn value<T: Real>(self, [a, b]: [T; 2]) -> T {
        self.relation.holds(a, b)
    }
}

impl Formula<1> for Compare {
    #[inline(always)]
    fn value<T: Real>(self, [x]: [T; 1]) -> T {
        self.relation.holds(x, T::from_f64(f64::from(self.number.unwrap_or(0.0))))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for relation in Relation::ALL {
        // Few different numbers, so that some are equal.
        let pair = Compare { relation, number: None };
        cases.extend(pairs::cases(pair, &format!("{}_", relation.name()), Fill::Labels(3)));
        let nan = Case::new(format!("{}_nan_5", relation.name()), pair, [TensorDesc::f32([5]), TensorDesc::f32([5])]);
        cases.push(nan.fill(1, Fill::Constant(f32::NAN)));
        for n in [1, 7, 257] {
            let op = Compare { relation, number: Some(1.0) };
            let case = Case::new(format!("{}_number_{n}", relation.name()), op, [TensorDesc::f32([n])]);
            cases.push(case.fill(0, Fill::Labels(3)));
        }
    }
    cases.into_iter().map(Case::forward_only).collect()
}
