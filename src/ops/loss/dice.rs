//! Dice loss of segmentations.

mod native;

use crate::error::OpError;
use crate::ops::elementwise::sigmoid::sigmoid;
use crate::ops::loss::class_loss::{Positions, expect_labels, label_shape};
use crate::ops::loss::sample_weights;
use crate::ops::reduce::reduction;
use crate::ops::sums::{Sums, mean, sum};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Integers, Native, Op, Real, Resources, Slot, expect_count,
    expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// How logits become probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probabilities {
    /// Over the classes: each pixel belongs to one.
    #[default]
    Softmax,
    /// Each class on its own: a pixel may belong to several.
    Sigmoid,
}

/// `loss = mean over samples and classes of 1 − (2 Σ p t + smooth) / (Σ p + Σ t + smooth)`, where the sums go over the pixels of
/// a sample, p are the probabilities of the logits and t the targets. Where `sample_weights`, each term is multiplied by the weight of its
/// sample
///
/// | tensor | shape |
/// |---|---|
/// | input (logits) | `[N, C, ...inner]` |
/// | target: probabilities as the input, or u32 labels | `[N, C, ...inner]` or `[N, ...inner]` |
/// | sample_weight, only where `sample_weights` | `[W]`, see [`loss`](crate::ops::loss) |
/// | loss | `[1]` |
/// | sums, for backward | `[N, C, 2]`: `Σ p t`, `Σ p + Σ t` |
///
/// Labels stand for 1 at the label's class and 0 at the others. Each sample has its own sums, so that a batch can be split. A class
/// of a sample costs nothing where its fraction is 0 / 0: without smoothing, where no pixel counts.
///
/// **Saved for backward:** input, target and sums; the probabilities are recomputed. **In place:** no.
/// **Numerics:** the largest logit of a pixel is subtracted before a softmax. A label that is neither below C nor ignored
/// makes the loss NaN. Sums in f32, always in the same order. The target gets no gradient.
///
/// # Errors
/// Where the shapes or types do not fit, there are more than 2¹⁴ classes, smooth is below 0, or a label is to be ignored but
/// the targets are probabilities.
///
/// Source: equation 3 of <https://arxiv.org/abs/1606.04797> without its squares, smoothed, as
/// <https://docs.monai.io/en/stable/losses.html#diceloss> has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dice {
    /// How logits become probabilities.
    pub probabilities: Probabilities,
    /// Added above and below the fraction, so that a class that is not there costs little.
    pub smooth: f32,
    /// Pixels with this label do not count.
    pub ignore_index: Option<u32>,
    /// Whether there is an input `sample_weight`.
    pub sample_weights: bool,
}

/// Most classes: kernels go over them three times at each pixel.
const MOST_CLASSES: usize = 1 << 14;

params! {
    struct Params {
        positions: u32,
        classes: u32,
        inner: u32,
        rows: u32,
        splits: u32,
        scale: f32,
        smooth_: f32,
        ignore_index: u32,
    }
}

/// Where partial results lie.
#[derive(Clone, Copy)]
struct Layout {
    positions: Positions,
    /// Sums: samples times classes.
    rows: usize,
    /// Parts of each sum over pixels, and of the mean over rows.
    splits: usize,
    mean_splits: usize,
}

impl Layout {
    fn of(input: &TensorDesc) -> Self {
        let (positions, rows) = (Positions::of(input), input.shape[0] * input.shape[1]);
        let splits = reduction::splits(rows, positions.inner);
        Layout { positions, rows, splits, mean_splits: reduction::splits(1, rows) }
    }
}

impl Dice {
    /// A launch; its bindings say the rest.
    fn launch(
        &self,
        entry: &'static str,
        bindings: Vec<Slot>,
        inputs: &[TensorDesc],
        invocations: usize,
        splits: usize,
    ) -> Dispatch {
        let Layout { positions, rows, .. } = Layout::of(&inputs[0]);
        let params = Params {
            positions: positions.count as u32,
            classes: positions.classes as u32,
            inner: positions.inner as u32,
            rows: rows as u32,
            splits: splits as u32,
            scale: 1.0 / rows as f32,
            smooth_: self.smooth,
            ignore_index: self.ignore_index.unwrap_or(0),
        };
        let flags = [
            ("SOFTMAX", self.probabilities == Probabilities::Softmax),
            ("LABELS", inputs[1].dtype == DType::U32),
            ("IGNORES", self.ignore_index.is_some()),
        ];
        let dispatch = Dispatch::new("dice", entry, bindings).params(&params).linear(invocations.div_ceil(64));
        flags.into_iter().filter(|(_, is_on)| *is_on).fold(dispatch, |dispatch, (name, _)| dispatch.constant(name, 1))
    }

    /// A launch of a kernel that multiplies by the weights of samples, where there are any.
    fn weighed(&self, launch: Dispatch, inputs: &[TensorDesc]) -> Dispatch {
        if self.sample_weights {
            sample_weights::bind(launch, inputs, inputs.len() - 1, inputs[0].shape[0])
        } else {
            launch
        }
    }

    fn is_softmax(self) -> bool {
        self.probabilities == Probabilities::Softmax
    }
}

impl Op for Dice {
    fn name(&self) -> &'static str {
        "dice"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let op = "dice";
        let setting = |setting, value: String, reason: &str| {
            Err(OpError::Setting { op, setting, value, reason: reason.to_owned() })
        };
        if !(self.smooth.is_finite() && self.smooth >= 0.0) {
            return setting("smooth", self.smooth.to_string(), "it must be 0 or more");
        }
        expect_count(op, inputs, 2 + usize::from(self.sample_weights))?;
        Positions::expect(op, &inputs[0])?;
        let (samples, classes) = (inputs[0].shape[0], inputs[0].shape[1]);
        if classes > MOST_CLASSES {
            let expected = format!("of at most {MOST_CLASSES} classes");
            return Err(OpError::Input { op, input: "input", expected, found: inputs[0].clone() });
        }
        if inputs[1].dtype == DType::U32 {
            expect_labels(op, inputs)?;
        } else {
            expect_dtype(op, "target", &inputs[1], DType::F32)?;
            expect_shape(op, "target", &inputs[1], inputs[0].shape.clone())?;
            if let Some(label) = self.ignore_index {
                return setting("ignore_index", label.to_string(), "the targets are probabilities, not labels");
            }
        }
        if self.sample_weights {
            sample_weights::expect(op, inputs)?;
        }
        Ok(vec![TensorDesc::f32([1]), TensorDesc::f32([samples, classes, 2])])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        if forward.wanted[1..].contains(&true) || forward.grad_outputs[1].is_some() {
            return Err(OpError::NotDifferentiable { op: "dice (for its target and weights, and of its sums)" });
        }
        let mut gradients = vec![None; forward.inputs.len()];
        if let Some(grad_loss) = forward.grad_outputs[0] {
            let inputs = [&forward.inputs[..2], &[forward.outputs[1], grad_loss], &forward.inputs[2..]].concat();
            gradients[0] = Some(graph.emit(GradInput(*self), &inputs)?);
        }
        Ok(gradients)
    }

    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        let &count = inputs[0].shape.get(1).filter(|_| input == 1 && inputs[1].dtype == DType::U32)?;
        Some(Integers::Indices { count, besides: self.ignore_index })
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let passes = if self.is_softmax() { 2 } else { 1 };
        let bytes_moved = passes * inputs[0].size_bytes() + inputs[1].size_bytes();
        Cost { flops: 12 * inputs[0].numel() as u64, bytes_moved }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let Layout { positions, rows, splits, mean_splits } = Layout::of(&inputs[0]);
        // One that is not needed is of 4 bytes, so that each keeps its number.
        let softmax = if self.is_softmax() { 8 * positions.count } else { 4 };
        let sums = if splits > 1 { 8 * rows * splits } else { 4 };
        let mean = if mean_splits > 1 { 4 * mean_splits } else { 4 };
        [softmax, sums, mean].map(|bytes| bytes as u64).to_vec()
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let Layout { positions, rows, splits, mean_splits } = Layout::of(&inputs[0]);
        let (input, target, sums) = (Slot::Input(0), Slot::Input(1), Slot::Output(1));
        let [softmax, partial_sums, partial_means] = [0, 1, 2].map(Slot::Workspace);
        let mut dispatches = Vec::new();
        let mut bindings = vec![input, target, if splits == 1 { sums } else { partial_sums }];
        if self.is_softmax() {
            let launch = self.launch("softmax", vec![input, softmax], inputs, positions.count, 1);
            dispatches.push(launch.loops(2 * positions.classes));
            bindings.push(softmax);
        }
        let launch = self.launch("sums", bindings, inputs, rows * splits, splits);
        dispatches.push(launch.loops(positions.inner.div_ceil(splits)));
        if splits > 1 {
            dispatches.push(reduction::combine(partial_sums, sums, 2 * rows, splits, 1.0));
        }
        let mean = if mean_splits == 1 { Slot::Output(0) } else { partial_means };
        let launch = self.launch("loss", vec![sums, mean], inputs, mean_splits, mean_splits);
        let launch = self.weighed(launch, inputs);
        dispatches.push(launch.loops(rows.div_ceil(mean_splits)));
        if mean_splits > 1 {
            dispatches.push(reduction::combine(partial_means, Slot::Output(0), 1, mean_splits, 1.0));
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Dice {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        native::workspaces(&inputs[0])
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        native::forward(self, call, with);
    }
}

/// The probabilities of all classes at a position.
fn probabilities<T: Real>(dice: Dice, input: &[T], elements: impl Iterator<Item = usize> + Clone) -> Vec<T> {
    if !dice.is_softmax() {
        return elements.map(|i| sigmoid(input[i])).collect();
    }
    let largest = elements.clone().map(|i| input[i]).fold(T::NEG_INFINITY, Real::max);
    let exponentials: Vec<T> = elements.map(|i| (input[i] - largest).exp()).collect();
    let sum = sum(exponentials.iter().copied());
    exponentials.into_iter().map(|e| e / sum).collect()
}

/// The targets of all classes at a position; `None` where it does not count.
fn targets<T: Real>(dice: Dice, call: &Call<'_, T>, positions: Positions, position: usize) -> Option<Vec<T>> {
    if call.input_descs[1].dtype != DType::U32 {
        return Some(positions.elements(position).map(|i| call.input(1)[i]).collect());
    }
    let label = call.ints(1)[position];
    if dice.ignore_index == Some(label) {
        return None;
    }
    let mut targets = vec![T::ZERO; positions.classes];
    match targets.get_mut(label as usize) {
        Some(target) => *target = T::ONE,
        None => targets.fill(T::from_f64(f64::NAN)),
    }
    Some(targets)
}

impl Dice {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, Layout { positions, rows, .. }) = (call.input(0), Layout::of(&call.input_descs[0]));
        let mut added = Sums::new(2 * rows);
        for position in 0..positions.count {
            let Some(targets) = targets(*self, call, positions, position) else { continue };
            let first_row = position / positions.inner * positions.classes;
            let probabilities = probabilities(*self, input, positions.elements(position));
            for (class, (p, t)) in probabilities.into_iter().zip(targets).enumerate() {
                added.add(2 * (first_row + class), p * t);
                added.add(2 * (first_row + class) + 1, p + t);
            }
        }
        let mut sums = vec![T::ZERO; 2 * rows];
        added.write(&mut sums);
        let smooth = T::from_f64(f64::from(self.smooth));
        let weight = sample_weights::factors(call, self.sample_weights, rows);
        let terms = sums.chunks(2).enumerate().map(|(row, sum)| {
            let total = sum[1] + smooth;
            let term = if total == T::ZERO { T::ZERO } else { T::ONE - (sum[0] + sum[0] + smooth) / total };
            weight(row) * term
        });
        let loss = mean(terms);
        call.output(0)[0] = loss;
        call.output(1).copy_from_slice(&sums);
    }
}

/// The gradient for the input; inputs `input, target, sums, grad_loss`, and weights if there are any. With `d` the fraction of the class
/// and `g = −grad_loss · weight / (N C) · (2 t − d) / (Σ p + Σ t + smooth)` the gradient for a probability, it is `p (g − Σ g p)` over the classes
/// for a softmax, `g p (1 − p)` for a sigmoid.
#[derive(Clone, Copy, Debug)]
struct GradInput(Dice);

impl Op for GradInput {
    fn name(&self) -> &'static str {
        "dice.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = 2 * inputs[0].size_bytes() + inputs[1].size_bytes();
        Cost { flops: 24 * inputs[0].numel() as u64, bytes_moved }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let positions = Positions::of(&inputs[0]);
        let bindings = [0, 1, 2, 3].map(Slot::Input).into_iter().chain([Slot::Output(0)]).collect();
        let launch = self.0.launch("grad_input", bindings, inputs, positions.count, 1);
        vec![self.0.weighed(launch, inputs).loops(3 * positions.classes)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for GradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        native::grad_input(&self.0, call, with);
    }
}

impl GradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, sums, grad_loss) = (call.input(0), call.input(2), call.input(3)[0]);
        let Layout { positions, rows, .. } = Layout::of(&call.input_descs[0]);
        let smooth = T::from_f64(f64::from(self.0.smooth));
        let factor = grad_loss / T::from_f64(rows as f64);
        let weight = sample_weights::factors(call, self.0.sample_weights, positions.count);
        for position in 0..positions.count {
            let elements = positions.elements(position);
            let Some(targets) = targets(self.0, call, positions, position) else {
                let grad = call.output(0);
                elements.for_each(|i| grad[i] = T::ZERO);
                continue;
            };
            let first_row = position / positions.inner * positions.classes;
            let factor = factor * weight(position);
            let by_probability = |class: usize, t: T| {
                let (both, total) = (sums[2 * (first_row + class)], sums[2 * (first_row + class) + 1] + smooth);
                let gradient = factor * ((both + both + smooth) / total - (t + t)) / total;
                if total == T::ZERO { T::ZERO } else { gradient }
            };
            let probabilities = probabilities(self.0, input, elements.clone());
            let by_probability: Vec<T> = targets.iter().enumerate().map(|(c, &t)| by_probability(c, t)).collect();
            let mean = sum(probabilities.iter().zip(&by_probability).map(|(&p, &g)| p * g));
            let grad = call.output(0);
            for ((element, p), g) in elements.zip(probabilities).zip(by_probability) {
                grad[element] = if self.0.is_softmax() { p * (g - mean) } else { g * p * (T::ONE - p) };
            }
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let softmax =
        Dice { probabilities: Probabilities::Softmax, smooth: 1.0, ignore_index: None, sample_weights: false };
    let sigmoid = Dice { probabilities: Probabilities::Sigmoid, ..softmax };
    let ignoring = Dice { ignore_index: Some(1), ..softmax };
    let labels = |name: &str, op: Dice, shape: &[usize]| {
        let labels = TensorDesc::u32(label_shape(&shape.into()));
        let pixels = labels.numel() / shape[0];
        let case = Case::new(name, op, [TensorDesc::f32(shape), labels]).fill(1, Fill::Labels(shape[1] as u32));
        let case = case.reduction(pixels.max(shape[1]));
        if pixels > 500 { case.large() } else { case }
    };
    let values = |name: &str, op: Dice, shape: &[usize]| {
        let desc = TensorDesc::f32(shape);
        let case = Case::new(name, op, [desc.clone(), desc]).fill(1, Fill::Uniform(0.0, 1.0)).no_grad(1);
        case.reduction(shape[1..].iter().product())
    };
    let samples = |op: Dice| Dice { sample_weights: true, ..op };
    let extreme = Fill::Uniform(-100.0, 100.0);
    vec![
        labels("softmax_2x3x4x5", softmax, &[2, 3, 4, 5]),
        labels("softmax_steps_3x2x7", softmax, &[3, 2, 7]),
        labels("softmax_little_smoothing_2x3x4x5", Dice { smooth: 1e-5, ..softmax }, &[2, 3, 4, 5]),
        labels("softmax_ignoring_2x3x4x5", ignoring, &[2, 3, 4, 5]),
        labels("softmax_extreme_2x3x7", softmax, &[2, 3, 7]).fill(0, extreme),
        values("softmax_values_2x3x4x5", softmax, &[2, 3, 4, 5]),
        labels("sigmoid_labels_2x3x4x5", sigmoid, &[2, 3, 4, 5]),
        values("sigmoid_2x3x4x5", sigmoid, &[2, 3, 4, 5]),
        values("sigmoid_one_class_3x1x7x5", sigmoid, &[3, 1, 7, 5]),
        values("sigmoid_extreme_2x3x7", sigmoid, &[2, 3, 7]).fill(0, extreme),
        values("one_pixel_5x3", sigmoid, &[5, 3]),
        labels("all_ignored_2x3x5", Dice { smooth: 0.0, ..ignoring }, &[2, 3, 5]).fill(1, Fill::Constant(1.0)),
        labels("nothing_2x3x5", Dice { smooth: 0.0, ..sigmoid }, &[2, 3, 5])
            .fill(0, Fill::Constant(-1000.0))
            .fill(1, Fill::Constant(0.0)),
        sample_weights::case(labels("samples2_2x3x4x5", samples(softmax), &[2, 3, 4, 5]), 2),
        sample_weights::case(labels("samples2_ignoring_4x3x7", samples(ignoring), &[4, 3, 7]), 2),
        sample_weights::case(values("samples1_sigmoid_3x2x5", samples(sigmoid), &[3, 2, 5]), 1),
        sample_weights::case(labels("samples257_514x3x3", samples(softmax), &[514, 3, 3]), 257).large(),
        labels("ignoring_31x2x65x67", ignoring, &[31, 2, 65, 67]),
        labels("long_2x3x257x259", softmax, &[2, 3, 257, 259]),
        labels("many_samples_257x3x3", softmax, &[257, 3, 3]).large(),
        labels("label_out_of_range_2x3x5", softmax, &[2, 3, 5]).fill(1, Fill::Constant(3.0)).large(),
    ]
}
