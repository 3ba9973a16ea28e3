//! What the cross-entropies share: a softmax over the classes at every position, compared with a distribution over them.
//!
//! A position is a sample, or a pixel or time step of one: inputs are `[N, C, ...inner]`, with N · inner positions.

mod column_kernels;
mod kernels;
mod native;

use std::fmt::Debug;

use crate::error::OpError;
use crate::ops::loss::sample_weights;
use crate::ops::reduce::reduction;
use crate::ops::sums::{self, Sums, sum};
use crate::ops::{
    Backward, Builder, Call, Cost, Dispatch, Native, Op, Real, Resources, Slot, expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// From so many classes on, a workgroup shares a position: before, one invocation has it to itself.
const MANY_CLASSES: usize = 512;
/// Loop iterations that a workgroup's sums and maxima over its lanes make at one position.
const LANES_ITERATIONS: usize = 64;
/// Most classes: so many are within what one lane may loop at a position.
const MOST_CLASSES: usize = 1 << 20;
/// Loop iterations after which a sum over positions is split further, to stay below
/// [`MAX_LOOP_ITERATIONS`](crate::ops::MAX_LOOP_ITERATIONS).
const ENOUGH_ITERATIONS: usize = 16_384;
/// Partial sums, and with them invocations or workgroups, that keep any device busy.
const ENOUGH_SPLITS: usize = 1 << 16;

pub(in crate::ops) use native::forward as run_native;

/// An input `[N, C, ...inner]` as positions with a number for every class.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Positions {
    pub(in crate::ops) count: usize,
    pub(in crate::ops) classes: usize,
    pub(in crate::ops) inner: usize,
}

impl Positions {
    /// Of an input that [`Positions::expect`] passed.
    pub(in crate::ops) fn of(input: &TensorDesc) -> Self {
        let inner = input.shape[2..].iter().product();
        Positions { count: input.shape[0] * inner, classes: input.shape[1], inner }
    }

    /// Checks that an input is f32 and has at least two axes, and not too many classes.
    pub(in crate::ops) fn expect(op: &'static str, input: &TensorDesc) -> Result<(), OpError> {
        expect_dtype(op, "input", input, DType::F32)?;
        let expected = match input.shape.get(1) {
            None => "of shape [N, C, ...]".to_owned(),
            Some(&classes) if classes > MOST_CLASSES => format!("of at most {MOST_CLASSES} classes"),
            Some(_) => return Ok(()),
        };
        Err(OpError::Input { op, input: "input", expected, found: input.clone() })
    }

    /// Number of the first class's element at a position; the others follow at a distance of `inner`.
    pub(in crate::ops) fn start(self, position: usize) -> usize {
        position / self.inner * self.classes * self.inner + position % self.inner
    }

    /// The elements of a position, one for every class.
    pub(in crate::ops) fn elements(self, position: usize) -> impl Iterator<Item = usize> + Clone {
        let start = self.start(position);
        (0..self.classes).map(move |class| start + class * self.inner)
    }

    /// Invocations that share a position: 1 or a workgroup.
    pub(in crate::ops) fn lanes(self) -> usize {
        reduction::lanes(self.classes, MANY_CLASSES)
    }

    /// Loop iterations at one position, in a kernel that goes over its classes so many times.
    pub(in crate::ops) fn iterations(self, passes: usize) -> usize {
        match self.lanes() {
            1 => passes * self.classes + 1,
            lanes => passes * self.classes.div_ceil(lanes) + LANES_ITERATIONS,
        }
    }

    /// In how many partial sums the positions are added up, and over how many positions each goes, for a kernel that goes
    /// over the classes of a position so many times.
    pub(in crate::ops) fn splits(self, passes: usize) -> (usize, usize) {
        let lanes = self.lanes();
        let needed = (self.count * self.iterations(passes)).div_ceil(ENOUGH_ITERATIONS);
        let splits = needed.max(ENOUGH_SPLITS / lanes).min(self.count).max(1);
        (splits, self.count.div_ceil(splits))
    }
}

/// `[N, ...inner]`: the shape of labels for an input `[N, C, ...inner]`.
pub(in crate::ops) fn label_shape(input: &Shape) -> Shape {
    input.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, &extent)| extent).collect::<Vec<_>>().into()
}

/// Checks labels: u32, one for each position.
pub(in crate::ops) fn expect_labels(op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
    expect_dtype(op, "labels", &inputs[1], DType::U32)?;
    expect_shape(op, "labels", &inputs[1], label_shape(&inputs[0].shape))
}

/// Settings of a cross-entropy.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Options {
    pub(in crate::ops) label_smoothing: f32,
    pub(in crate::ops) ignore_index: Option<u32>,
    /// Whether the sum is multiplied by an input of one number, `normalizer`; else it is divided by the positions.
    pub(in crate::ops) normalized: bool,
    /// Whether there is an input `class_weights` behind it.
    pub(in crate::ops) weighted: bool,
    /// Whether there is an input `sample_weight`, which comes last.
    pub(in crate::ops) sample_weights: bool,
}

impl Options {
    /// Checks the inputs behind input and target, and the settings.
    pub(in crate::ops) fn expect(self, op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let (value, reason) = (self.label_smoothing.to_string(), "it must be in 0..=1".to_owned());
            return Err(OpError::Setting { op, setting: "label_smoothing", value, reason });
        }
        let mut more = inputs[2..].iter();
        let mut expect = |name: &'static str, numel: usize| {
            let desc = more.next().expect("bug: the inputs were counted");
            expect_dtype(op, name, desc, DType::F32)?;
            expect_shape(op, name, desc, [numel])
        };
        if self.normalized {
            expect("normalizer", 1)?;
        }
        if self.weighted {
            expect("class_weights", inputs[0].shape[1])?;
        }
        if self.sample_weights {
            sample_weights::expect(op, inputs)?;
        }
        Ok(())
    }

    /// How many of normalizer and class weights there are.
    fn scales(self) -> usize {
        usize::from(self.normalized) + usize::from(self.weighted)
    }

    /// The number of inputs.
    pub(in crate::ops) fn inputs(self) -> usize {
        2 + self.scales() + usize::from(self.sample_weights)
    }
}

/// A loss over classes. At each position, with the share q of the target at a class smoothed to
/// `(1 − s) q + s / C` and multiplied by the class's weight, the loss is `Σ q (ln Σ exp(x) − x)` over the classes, times the weight
/// of the sample.
pub(in crate::ops) trait ClassLoss: Op + Copy {
    /// Name of the op and of its files.
    const NAME: &'static str;
    /// Name of the backward op: `<NAME>.grad_input`.
    const GRAD_INPUT: &'static str;

    /// The settings.
    fn options(&self) -> Options;

    /// The target's share of a class at a position, before smoothing; `None` where the position does not count. NaN where
    /// it makes no sense.
    fn share<T: Real>(&self, call: &Call<'_, T>, at: Coordinate) -> Option<T>;
}

/// A class at a position.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Coordinate {
    pub(in crate::ops) position: usize,
    pub(in crate::ops) class: usize,
    pub(in crate::ops) classes: usize,
    pub(in crate::ops) element: usize,
}

params! {
    struct Params {
        positions: u32,
        classes: u32,
        inner: u32,
        splits: u32,
        steps: u32,
        smoothing: f32,
        scale: f32,
        ignore_index: u32,
    }
}

/// Passes over the classes: forward's, and those of the gradient.
const PASSES: [usize; 2] = [2, 3];

/// A launch that binds `fixed` and then the inputs behind them, if there are any: those from `first` on.
fn launch<L: ClassLoss>(
    loss: &L,
    entry: &'static str,
    fixed: &[Slot],
    first: usize,
    inputs: &[TensorDesc],
) -> Dispatch {
    let (positions, options) = (Positions::of(&inputs[0]), loss.options());
    let is_forward = entry == "forward";
    let (splits, steps) = if is_forward { positions.splits(PASSES[0]) } else { (positions.count, 1) };
    let params = Params {
        positions: positions.count as u32,
        classes: positions.classes as u32,
        inner: positions.inner as u32,
        splits: splits as u32,
        steps: steps as u32,
        smoothing: options.label_smoothing,
        scale: if options.normalized { 1.0 } else { 1.0 / positions.count as f32 },
        ignore_index: options.ignore_index.unwrap_or(0),
    };
    let iterations = positions.iterations(PASSES[usize::from(!is_forward)]);
    let scales = first..first + options.scales();
    let bindings: Vec<_> = fixed.iter().copied().chain(scales.clone().map(Slot::Input)).collect();
    let mut dispatch = Dispatch::new(L::NAME, entry, bindings).params(&params).loops(steps * iterations);
    let flags = [
        ("IGNORES", options.ignore_index.is_some()),
        ("NORMALIZED", options.normalized),
        ("WEIGHTED", options.weighted),
    ];
    dispatch = dispatch.flags(flags);
    if options.sample_weights {
        dispatch = sample_weights::bind(dispatch, inputs, scales.end, positions.count);
    }
    reduction::over_rows(dispatch, splits, positions.lanes())
}

/// The bytes of the partial sums.
pub(in crate::ops) fn workspaces(input: &TensorDesc) -> Vec<u64> {
    let positions = Positions::of(input);
    vec![4 * positions.splits(PASSES[0]).0 as u64]
}

/// The launches of the loss.
pub(in crate::ops) fn dispatches<L: ClassLoss>(loss: &L, inputs: &[TensorDesc]) -> Vec<Dispatch> {
    let positions = Positions::of(&inputs[0]);
    let (splits, _) = positions.splits(PASSES[0]);
    let forward = [Slot::Input(0), Slot::Input(1), Slot::Workspace(0)];
    vec![
        launch(loss, "forward", &forward, 2, inputs),
        reduction::combine(Slot::Workspace(0), Slot::Output(0), 1, splits, 1.0),
    ]
}

/// Flops and bytes of the loss, or of its gradient, which also moves as many bytes as the input has.
pub(in crate::ops) fn cost(inputs: &[TensorDesc], gradient: bool) -> Cost {
    let bytes: u64 = inputs.iter().map(TensorDesc::size_bytes).sum();
    let more = if gradient { inputs[0].size_bytes() } else { 0 };
    Cost { flops: 10 * inputs[0].numel() as u64, bytes_moved: bytes + more }
}

/// Adds the node of the gradient for the input; the others have none.
pub(in crate::ops) fn backward<L: ClassLoss>(
    loss: &L,
    graph: &mut dyn Builder,
    forward: &Backward<'_>,
) -> Result<Vec<Option<ValueId>>, OpError> {
    if forward.wanted[1..].contains(&true) {
        return Err(OpError::NotDifferentiable { op: L::NAME });
    }
    let mut gradients = vec![None; forward.inputs.len()];
    if let Some(grad_loss) = forward.grad_outputs[0] {
        let inputs = [&forward.inputs[..2], &[grad_loss], &forward.inputs[2..]].concat();
        gradients[0] = Some(graph.emit(GradInput(*loss), &inputs)?);
    }
    Ok(gradients)
}

/// What a position's loss and gradient are made of.
struct Softmax<T> {
    largest: T,
    /// Of the exponentials of the differences from it.
    sum: T,
    /// The target's shares by class, smoothed and weighted.
    shares: Vec<T>,
}

/// The softmax at a position; `None` where it does not count. `first` is the number of the first input behind the fixed ones.
fn softmax<L: ClassLoss, T: Real>(
    loss: &L,
    call: &Call<'_, T>,
    positions: Positions,
    position: usize,
    first: usize,
) -> Option<Softmax<T>> {
    let (input, options, classes) = (call.input(0), loss.options(), positions.classes);
    let weights = first + usize::from(options.normalized);
    let smoothing = T::from_f64(f64::from(options.label_smoothing));
    let elements = positions.elements(position);
    let largest = elements.clone().map(|i| input[i]).fold(T::NEG_INFINITY, Real::max);
    let sum = sum(elements.clone().map(|i| (input[i] - largest).exp()));
    let shares = elements.enumerate().map(|(class, element)| {
        let share = loss.share(call, Coordinate { position, class, classes, element })?;
        let weight = if options.weighted { call.input(weights)[class] } else { T::ONE };
        Some(weight * ((T::ONE - smoothing) * share + smoothing / T::from_f64(classes as f64)))
    });
    Some(Softmax { largest, sum, shares: shares.collect::<Option<_>>()? })
}

/// What the sum over positions is multiplied by; `normalizer` is the number of the input that says so.
fn scale<L: ClassLoss, T: Real>(loss: &L, call: &Call<'_, T>, positions: Positions, normalizer: usize) -> T {
    if loss.options().normalized { call.input(normalizer)[0] } else { T::ONE / T::from_f64(positions.count as f64) }
}

/// The CPU twin of the loss.
pub(in crate::ops) fn forward_twin<L: ClassLoss, T: Real>(loss: &L, call: &mut Call<'_, T>) {
    let (input, positions) = (call.input(0), Positions::of(&call.input_descs[0]));
    let weight = sample_weights::factors(call, loss.options().sample_weights, positions.count);
    let mut total = Sums::new(1);
    for position in 0..positions.count {
        let Some(Softmax { largest, sum, shares }) = softmax(loss, call, positions, position, 2) else {
            continue;
        };
        for (element, share) in positions.elements(position).zip(shares) {
            // A class without a share does not count, even where its logit is −∞.
            if share != T::ZERO {
                total.add(0, weight(position) * (share * (sum.ln() + (largest - input[element]))));
            }
        }
    }
    let scale = scale(loss, call, positions, 2);
    call.output(0)[0] = total.get::<T>(0) * scale;
}

/// `grad_input = scale · grad_loss · weight · (softmax(input) · Σ shares − share)`, weight that of the sample; inputs
/// `input, target, grad_loss`, then as forward.
#[derive(Clone, Copy, Debug)]
struct GradInput<L>(L);

impl<L: ClassLoss> Op for GradInput<L> {
    fn name(&self) -> &'static str {
        L::GRAD_INPUT
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        cost(inputs, true)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let fixed = [Slot::Input(0), Slot::Input(1), Slot::Input(2), Slot::Output(0)];
        vec![launch(&self.0, "grad_input", &fixed, 3, inputs)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl<L: ClassLoss> Native for GradInput<L> {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        native::grad_input(&self.0, call, with);
    }
}

impl<L: ClassLoss> GradInput<L> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, positions) = (call.input(0), Positions::of(&call.input_descs[0]));
        let factor = scale(&self.0, call, positions, 3) * call.input(2)[0];
        let weight = sample_weights::factors(call, self.0.options().sample_weights, positions.count);
        for position in 0..positions.count {
            let found = softmax(&self.0, call, positions, position, 3);
            let grad = call.output(0);
            let Some(Softmax { largest, sum, shares }) = found else {
                positions.elements(position).for_each(|element| grad[element] = T::ZERO);
                continue;
            };
            let total = sums::sum(shares.iter().copied());
            let factor = factor * weight(position);
            for (element, share) in positions.elements(position).zip(shares) {
                grad[element] = factor * ((input[element] - largest).exp() / sum * total - share);
            }
        }
    }
}
