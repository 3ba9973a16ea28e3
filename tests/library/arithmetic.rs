//! Arithmetic of tensors: shapes and values of each method, what is refused and in which words, and the gradient of a formula in
//! training.

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::GraphError;
use tightfit::nn::{Init, Input, Linear, Mode, Model, Module, Scope, Tensor};
use tightfit::tensor::{DType, ValueId};
use tightfit::train::{Config, Loss, Optimizer, Trainer};

use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, run_op};
use crate::common::recipe;

/// Samples of a batch.
const BATCH: usize = 3;

type Formula = for<'a> fn(Tensor<'a>) -> Tensor<'a>;
/// What a formula makes of one element.
type OfElement = fn(f64) -> f64;

fn numbers(name: &str, count: usize) -> Vec<f32> {
    recipe::symmetric(name).take(count).collect()
}

fn model(sample: &[usize], formula: Formula) -> Model {
    Model::new("formula", Input::values(sample), formula)
}

/// Shape and values of a formula of samples of this shape; numbers in -1..1, and integers below 3, are drawn by the input's name.
fn evaluate(sample: &[usize], formula: Formula) -> (Vec<usize>, Vec<f64>) {
    let built = model(sample, formula).build(BATCH, Mode::Evaluate).unwrap_or_else(|error| panic!("{error}"));
    let graph = &built.graph;
    let mut values: Vec<Option<Buf<f64>>> = vec![None; graph.values().len()];
    for id in graph.value_ids().filter(|&id| graph.value(id).producer.is_none()) {
        let value = graph.value(id);
        values[id.index()] = Some(match value.desc.dtype {
            DType::U32 => Buf::Int(recipe::below(&value.name, 3).take(value.desc.numel()).collect()),
            _ => Buf::from_f32(&numbers(&value.name, value.desc.numel())),
        });
    }
    for node in graph.nodes() {
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
        let inputs: Vec<_> = node.inputs.iter().map(|id| values[id.index()].as_ref().expect("made before")).collect();
        let (made, _) = run_op(&*node.op, &descs(&node.inputs), &descs(&node.outputs), &inputs);
        for (id, data) in node.outputs.iter().zip(made) {
            values[id.index()] = Some(data);
        }
    }
    let output = values[built.output.index()].as_ref().expect("made").to_f64();
    (graph.value(built.output).desc.shape.to_vec(), output)
}

/// The samples that [`evaluate`] draws, of so many numbers each.
fn samples(numel: usize) -> Vec<f64> {
    numbers("input", BATCH * numel).into_iter().map(f64::from).collect()
}

fn check(sample: &[usize], formula: Formula, shape: &[usize], expected: &[f64]) {
    let (found_shape, found) = evaluate(sample, formula);
    assert_eq!(found_shape, shape);
    close(&found, expected, Tolerance { scale: 1e-7, relative: 1e-7, absolute: 1e-9 }).unwrap();
}

#[test]
fn operators_take_tensors_and_numbers() {
    let x = samples(4);
    let each = |f: OfElement| x.iter().map(|&x| f(x)).collect::<Vec<_>>();
    let cases: [(Formula, OfElement); 16] = [
        (|x| x + x, |x| 2.0 * x),
        (|x| x * x, |x| x * x),
        (|x| x - x.exp(), |x| x - x.exp()),
        (|x| x / x.exp(), |x| x / x.exp()),
        (|x| x + 0.5, |x| x + 0.5),
        (|x| 0.5 + x, |x| x + 0.5),
        (|x| x - 0.5, |x| x - 0.5),
        (|x| 0.5 - x, |x| 0.5 - x),
        (|x| x * -3.0, |x| x * -3.0),
        (|x| -3.0 * x, |x| x * -3.0),
        (|x| x / 4.0, |x| x / 4.0),
        (|x| 4.0 / (x + 2.0), |x| 4.0 / (x + 2.0)),
        (|x| -x, |x| -x),
        (|x| x.square() + (x + 2.0).reciprocal(), |x| x * x + 1.0 / (x + 2.0)),
        (|x| x.sin() * x.cos(), |x| x.sin() * x.cos()),
        (|x| x.detach().clamp(-0.5, 0.25), |x| x.clamp(-0.5, 0.25)),
    ];
    for (formula, expected) in cases {
        check(&[4], formula, &[BATCH, 4], &each(expected));
    }
}

#[test]
fn comparisons_choose() {
    let x = samples(4);
    let each = |f: OfElement| x.iter().map(|&x| f(x)).collect::<Vec<_>>();
    let number = |holds: bool| f64::from(u8::from(holds));
    let cases: [(Formula, OfElement); 9] = [
        (|x| x.gt(0.0).where_else(x, 0.1 * x), |x| if x > 0.0 { x } else { f64::from(0.1_f32) * x }),
        (|x| x.le(0.25).where_else(-1.0, x), |x| if x <= 0.25 { -1.0 } else { x }),
        (|x| x.lt(x.square()).where_else(x, f32::NEG_INFINITY), |x| if x < x * x { x } else { f64::NEG_INFINITY }),
        (|x| (x - x).ne(0.0).where_else(2.0, 3.0), |_| 3.0),
        // What is not chosen may be NaN.
        (|x| x.gt(0.0).where_else(x.log(), x), |x| if x > 0.0 { x.ln() } else { x }),
        (|x| x.maximum(0.25).minimum(0.5), |x| x.clamp(0.25, 0.5)),
        (|x| x.maximum(x.square()), |x| x.max(x * x)),
        (|x| x.minimum(-x), |x| -x.abs()),
        (|x| x.eq(x) * x, |x| x),
    ];
    for (formula, expected) in cases {
        check(&[4], formula, &[BATCH, 4], &each(expected));
    }
    let other: Vec<_> = numbers("other", BATCH * 4).into_iter().map(f64::from).collect();
    let holds: Vec<_> = x.iter().zip(&other).map(|(x, other)| number(x >= other)).collect();
    check(&[4], |x| x.ge(x.input("other", [4])), &[BATCH, 4], &holds);
}

#[test]
fn shapes_are_broadcast() {
    let x = samples(6);
    let y: Vec<_> = numbers("y", BATCH * 2).into_iter().map(f64::from).collect();
    // [3, 2, 3] - [3, 2, 1], and the same with a number for each sample: [3, 1, 1].
    let expected: Vec<_> = (0..x.len()).map(|i| x[i] - y[i / 3]).collect();
    check(&[2, 3], |x| x - x.input("y", [2]).unsqueeze(-1), &[BATCH, 2, 3], &expected);
    let expected: Vec<_> = (0..x.len()).map(|i| f64::from(u8::from(x[i / 6 * 6] > x[i]))).collect();
    check(&[2, 3], |x| x.index(1, 0).index(1, 0).unsqueeze(1).unsqueeze(2).gt(x), &[BATCH, 2, 3], &expected);
    // Both sides are repeated, and a missing axis counts as 1.
    let expected: Vec<_> = (0..BATCH * BATCH * 2).map(|i| y[i / 2 / BATCH * 2 + i % 2] * y[i % (BATCH * 2)]).collect();
    let formula: Formula = |x| {
        let y = x.input("y", [2]);
        y.unsqueeze(1) * y
    };
    check(&[2, 3], formula, &[BATCH, BATCH, 2], &expected);
    let expected: Vec<_> = (0..BATCH * 4).map(|i| x[i / 4 * 6]).collect();
    check(&[2, 3], |x| x.index(1, 0).slice(1, 0, 1).expand([BATCH, 4]), &[BATCH, 4], &expected);
    check(&[2, 3], |x| x.expand(x.shape()), &[BATCH, 2, 3], &x);
}

#[test]
fn reductions_go_over_axes() {
    let x = samples(10);
    let rows: Vec<&[f64]> = x.chunks(5).collect();
    let each = |f: &dyn Fn(&[f64]) -> f64| rows.iter().map(|row| f(row)).collect::<Vec<_>>();
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    let var = |row: &[f64], correction: f64| {
        row.iter().map(|x| (x - mean(row)).powi(2)).sum::<f64>() / (row.len() as f64 - correction)
    };
    check(&[2, 5], |x| x.sum(&[-1], false), &[BATCH, 2], &each(&|row| row.iter().sum()));
    check(&[2, 5], |x| x.mean(&[2], true), &[BATCH, 2, 1], &each(&mean));
    check(&[2, 5], |x| x.max(&[2], false), &[BATCH, 2], &each(&|row| row.iter().copied().fold(f64::MIN, f64::max)));
    check(&[2, 5], |x| x.min(&[2], false), &[BATCH, 2], &each(&|row| row.iter().copied().fold(f64::MAX, f64::min)));
    check(&[2, 5], |x| x.var(&[2], 0, false), &[BATCH, 2], &each(&|row| var(row, 0.0)));
    check(&[2, 5], |x| x.var(&[-1], 1, true), &[BATCH, 2, 1], &each(&|row| var(row, 1.0)));
    check(&[2, 5], |x| x.std(&[-1], 1, false), &[BATCH, 2], &each(&|row| var(row, 1.0).sqrt()));
    check(&[2, 5], |x| x.mean(&[], false), &[1], &[mean(&x)]);
    check(&[2, 5], |x| x.var(&[], 1, true), &[1, 1, 1], &[var(&x, 1.0)]);
    let largest = x.iter().copied().fold(f64::MIN, f64::max);
    check(&[2, 5], |x| x.max(&[0, -2], false).max(&[0], true), &[1], &[largest]);
}

#[test]
fn axes_are_cut_joined_and_exchanged() {
    let x = samples(6);
    let at = |n: usize, i: usize, j: usize| x[n * 6 + i * 3 + j];
    let all = |f: &dyn Fn(usize) -> Vec<f64>| (0..BATCH).flat_map(f).collect::<Vec<_>>();
    check(&[2, 3], |x| x.index(1, -1), &[BATCH, 3], &all(&|n| (0..3).map(|j| at(n, 1, j)).collect()));
    check(&[2, 3], |x| x.index(-1, 1), &[BATCH, 2], &all(&|n| vec![at(n, 0, 1), at(n, 1, 1)]));
    check(&[2, 3], |x| x.index(0, 1).index(0, 0).index(0, 2), &[1], &[at(1, 0, 2)]);
    check(&[2, 3], |x| x.unsqueeze(0).unsqueeze(-1).squeeze(0), &[BATCH, 2, 3, 1], &x);
    let transposed = all(&|n| (0..6).map(|i| at(n, i % 2, i / 2)).collect());
    check(&[2, 3], |x| x.transpose(-1, 1), &[BATCH, 3, 2], &transposed);
    let stacked = all(&|n| (0..6).flat_map(|i| [at(n, i / 3, i % 3), -at(n, i / 3, i % 3), 1.0]).collect());
    check(&[2, 3], |x| x.stack(&[-x, x.eq(x)], -1), &[BATCH, 2, 3, 3], &stacked);
    check(&[2, 3], |x| x.stack(&[], 1), &[BATCH, 1, 2, 3], &x);
}

#[test]
fn integers_become_numbers() {
    let labels: Vec<u32> = recipe::below("labels", 3).take(BATCH * 2).collect();
    let rows: Vec<_> = labels.iter().flat_map(|&label| (0..3).map(move |c| f64::from(u8::from(c == label)))).collect();
    check(&[1], |x| x.input("labels", Input::tokens([2])).one_hot(3), &[BATCH, 2, 3], &rows);
    let numbers: Vec<_> = labels.iter().map(|&label| f64::from(label) / 2.0).collect();
    check(&[1], |x| x.input("labels", Input::tokens([2])).to_float() / 2.0, &[BATCH, 2], &numbers);
}

#[test]
fn indices_are_checked_before_they_are_taken() {
    let formula: Formula = |x| {
        let chosen = x.input("labels", Input::tokens([])).one_hot(3);
        (x.layer("scores", Linear::new(3)) * chosen).sum(&[1], true)
    };
    let config = Config::default().batch(2).loss(Loss::Mse);
    let mut trainer = Trainer::new(model(&[3], formula), config, Some("cpu")).expect("a trainer");
    let mut step = |labels: Vec<u32>| {
        let targets = Targets::Values { values: vec![0.0; 2], shape: [1].into() };
        let data = TensorDataset::new(Values::F32(numbers("x", 6)), [3], targets).expect("fits");
        let data = data.with_input("labels", Values::U32(labels), []).expect("fits");
        trainer.step(&data, &[0, 1]).map_err(|error| error.to_string())
    };
    assert!(step(vec![0, 2]).is_ok());
    let error = step(vec![0, 3]).expect_err("must be refused");
    assert!(error.contains("`one_hot` takes 0 to 2"), "{error}");
}

#[test]
fn matrices_are_multiplied() {
    // Samples [2, 3] as matrices; y is [3] for each.
    let x = samples(6);
    let y: Vec<_> = numbers("y", BATCH * 3).into_iter().map(f64::from).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let rows: Vec<&[f64]> = x.chunks(3).collect();
    let own: Vec<_> = (0..BATCH * 2).map(|i| dot(rows[i], &y[i / 2 * 3..][..3])).collect();
    let formula: Formula = |x| x.matmul(x.input("y", [3]).unsqueeze(-1)).squeeze(-1);
    check(&[2, 3], formula, &[BATCH, 2], &own);
    // One matrix for all: the three vectors y as columns.
    let shared: Vec<_> = (0..BATCH * 2 * BATCH).map(|i| dot(rows[i / BATCH], &y[i % BATCH * 3..][..3])).collect();
    let formula: Formula = |x| x.matmul(x.input("y", [3]).transpose(0, 1));
    check(&[2, 3], formula, &[BATCH, 2, BATCH], &shared);
    // Axes before the matrices are broadcast: [3, 1, 2, 3] times [3, 3, 1], one of three vectors each.
    let formula: Formula = |x| x.unsqueeze(1).matmul(x.input("y", [3]).unsqueeze(-1)).squeeze(-1);
    let many = (0..BATCH).flat_map(|n| (0..BATCH).flat_map(move |j| [(2 * n, j), (2 * n + 1, j)]));
    let many: Vec<_> = many.map(|(i, j)| dot(rows[i], &y[j * 3..][..3])).collect();
    check(&[2, 3], formula, &[BATCH, BATCH, 2], &many);
    // Vectors: one for all, y of the first sample, behind and before matrices.
    let first: Vec<_> = (0..BATCH * 2).map(|i| dot(rows[i], &y[..3])).collect();
    let formula: Formula = |x| x.matmul(x.input("y", [3]).index(0, 0));
    check(&[2, 3], formula, &[BATCH, 2], &first);
    let formula: Formula = |x| x.input("y", [3]).index(0, 0).matmul(x.transpose(1, 2));
    check(&[2, 3], formula, &[BATCH, 2], &first);
    let formula: Formula = |x| x.input("y", [3]).index(0, 0).matmul(x.index(0, 0).index(0, 0));
    check(&[2, 3], formula, &[1], &[dot(rows[0], &y[..3])]);
    let gram: Formula = |x| {
        let y = x.input("y", [3]);
        y.matmul(y.transpose(0, 1))
    };
    let products: Vec<_> =
        (0..BATCH * BATCH).map(|i| dot(&y[i / BATCH * 3..][..3], &y[i % BATCH * 3..][..3])).collect();
    check(&[2, 3], gram, &[BATCH, BATCH], &products);
}

#[test]
fn what_does_not_fit_is_refused_in_one_sentence() {
    let cases: [(Formula, &str); 19] = [
        (
            |x| x + x.input("y", [2, 4]),
            "layer `add`: cannot broadcast [3, 2, 3] and [3, 2, 4]: counted from the last axis, extents must be equal or 1 \
             (the batch is axis 0)",
        ),
        (
            |x| x.gt(1.0).where_else(x, x.input("y", [2])),
            "layer `where`: cannot broadcast [3, 2, 3] and [3, 2, 3] and [3, 2]",
        ),
        (|x| x.maximum(x.index(1, 0)), "layer `maximum`: cannot broadcast [3, 2, 3] and [3, 3]"),
        (
            |x| x * x.input("y", Input::tokens([2, 3])),
            "layer `mul`: takes numbers, found u32[3, 2, 3]: make them of it with",
        ),
        (|x| x / 0.0, "layer `div`: cannot divide by 0: its reciprocal is not finite"),
        (|x| x + f32::NAN, "layer `add`: add_scalar: value = NaN is not possible"),
        (|x| x.sum(&[3], false), "layer `sum`: there is no axis 3 in [3, 2, 3]: choose one of 0, the batch, to 2"),
        (|x| x.max(&[1, -2], false), "layer `max`: amax: axes = [1, 1] is not possible: an axis is named twice"),
        (|x| x.mean(&[-4], true), "layer `mean`: there is no axis -4 in [3, 2, 3]"),
        (
            |x| x.index(2, 0).unsqueeze(2).var(&[2], 1, false),
            "layer `var`: the variance over axes [2] of [3, 2, 1] needs more than correction = 1 elements, found 1",
        ),
        (|x| x.index(1, 2), "layer `index`: there is no index 2 along axis 1 of [3, 2, 3], which has 2"),
        (|x| x.index(1, -3), "layer `index`: there is no index -3 along axis 1"),
        (|x| x.squeeze(1), "layer `squeeze`: axis 1 of [3, 2, 3] has extent 2: only one of 1 can go"),
        (|x| x.unsqueeze(4), "layer `unsqueeze`: a new axis of [3, 2, 3] cannot be axis 4: choose one of 0 to 3"),
        (|x| x.expand([3, 4, 3]), "layer `expand`: cannot expand [3, 2, 3] to [3, 4, 3]"),
        (
            |x| x.stack(&[x.index(1, 0)], 0),
            "layer `stack`: puts [3, 2, 3] and [3, 3] together: they must have one shape",
        ),
        (
            |x| x.matmul(x),
            "layer `matmul`: cannot multiply [3, 2, 3] by [3, 2, 3]: the last axis of the first must be as long",
        ),
        (
            |x| x.matmul(x.index(0, 0).index(1, 0)),
            "layer `matmul`: cannot multiply [3, 2, 3] by [2]: the only axis of a vector must be as long as the one",
        ),
        (|x| x.one_hot(4), "layer `one_hot`: one_hot: `indices` must be of type u32"),
    ];
    for (formula, expected) in cases {
        let error = model(&[2, 3], formula).build(BATCH, Mode::Evaluate).expect_err("must be refused").to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Operators on tensors of one shape are nothing but the op.
#[test]
fn tensors_of_one_shape_are_not_broadcast() {
    let ops = |formula: Formula| -> Vec<String> {
        let built = model(&[2, 3], formula).build(BATCH, Mode::Evaluate).expect("builds");
        built.graph.nodes().iter().map(|node| format!("{} {:?}", node.name, node.op)).collect()
    };
    assert_eq!(ops(|x| x + x.input("y", [2, 3])), ["add Add"]);
    assert_eq!(ops(|x| x * x.input("y", [2, 3])), ["mul Mul"]);
    assert_eq!(ops(|x| x - x.input("y", [2, 3])), ["sub Sub"]);
}

/// Numbers that are trained, `[3]`, in a formula of their own.
struct Weights;

impl Module for Weights {
    fn build(&self, scope: &mut Scope<'_>, _input: ValueId) -> Result<ValueId, GraphError> {
        scope.parameter("weight", [3], Init::Constant { value: 0.75 })
    }
}

/// One number for each sample: the mean of ln cosh(w · x − t) / w², which broadcasts the parameter w over the batch.
fn log_cosh(x: Tensor<'_>) -> Tensor<'_> {
    let w = x.layer("w", Weights);
    let d = (w * x - x.input("t", [3])).abs();
    let loss = (d + (-2.0 * d).softplus() - std::f32::consts::LN_2) / (w * w);
    loss.mean(&[1], true)
}

/// What a person would write down for it: d/dw of ln cosh(d) / w² is tanh(d) x / w² − 2 ln cosh(d) / w³.
#[test]
fn a_formula_is_trained_with_its_gradient() {
    const SAMPLES: usize = 6;
    let (x, t) = (numbers("x", SAMPLES * 3), numbers("t", SAMPLES * 3));
    let targets = Targets::Values { values: vec![0.0; SAMPLES], shape: [1].into() };
    let data = TensorDataset::new(Values::F32(x.clone()), [3], targets).expect("fits");
    let data = data.with_input("t", Values::F32(t.clone()), [3]).expect("fits");
    let (mut loss, mut gradient) = (0.0, [0.0; 3]);
    for (i, (&x, &t)) in x.iter().zip(&t).enumerate() {
        let (x, w) = (f64::from(x), 0.75_f64);
        let d = w * x - f64::from(t);
        loss += d.cosh().ln() / (w * w) / (SAMPLES * 3) as f64;
        gradient[i % 3] += (d.tanh() * x / (w * w) - 2.0 * d.cosh().ln() / w.powi(3)) / (SAMPLES * 3) as f64;
    }
    // The formula is never negative, so that its distance from 0 is itself.
    let optimizer = Optimizer::Sgd { lr: 0.05, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
        for parts in [1, 3] {
            let config = Config::default().batch(SAMPLES).micro_batches(parts).optimizer(optimizer);
            let config = config.loss(Loss::Mae);
            let model = Model::new("log-cosh", [3], log_cosh);
            let mut trainer = Trainer::new(model, config, &device).expect("a trainer");
            assert_eq!(trainer.plan().micro_batches.len(), parts);
            let found = trainer.step(&data, &(0..SAMPLES).collect::<Vec<_>>()).expect("a step").loss;
            // SGD's momentum after the first step is the gradient.
            let momentum = trainer.optimizer_state("w.weight", "momentum_buffer").expect("read").expect("there");
            let momentum: Vec<_> = momentum.into_iter().map(f64::from).collect();
            let tolerance = Tolerance { scale: 2e-6, relative: 1e-6, absolute: 1e-9 };
            close(&[f64::from(found)], &[loss], tolerance).unwrap_or_else(|error| panic!("{device}: {error}"));
            close(&momentum, &gradient, tolerance).unwrap_or_else(|error| panic!("{device}, {parts}: {error}"));
        }
    }
}

#[test]
fn a_batch_whose_samples_are_mixed_is_not_cut() {
    let targets = Targets::Values { values: vec![0.0; 4], shape: [1].into() };
    let data = TensorDataset::new(Values::F32(numbers("x", 12)), [3], targets).expect("fits");
    let config = |parts| Config::default().batch(4).micro_batches(parts).loss(Loss::Mse);
    let formulas: [(Formula, &str); 3] = [
        (|x| (x - x.mean(&[0], true)).layer("linear", Linear::new(1)), "layer `mean` (mean) mixes"),
        // Pairs of samples: the shape alone does not say which axis is which.
        (
            |x| (x.unsqueeze(1) - x).abs().sum(&[1], false).layer("linear", Linear::new(1)),
            "layer `sub` (permute) mixes",
        ),
        (|x| x.stack(&[x], 0).sum(&[0], false).layer("linear", Linear::new(1)), "layer `stack` (permute) mixes"),
    ];
    for (formula, expected) in formulas {
        let trainer = |config: Config| Trainer::new(model(&[3], formula), config, Some("cpu"));
        assert!(trainer(config(1)).expect("a trainer").step(&data, &[0, 1, 2, 3]).is_ok());
        let error = trainer(config(2)).expect_err("must be refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
