// The kernels of normalizations. The elements of a tensor form groups, each of which has a mean and a variance; each
// element also has a weight w and a bias b, which many elements share:
//   x = (input - mean) / sqrt(variance + eps), output = w * x + b, and with RELU, output = max(output, 0);
//   g = grad_output, with RELU 0 where the output is not above 0;
//   grad_bias = sum of g, grad_weight = sum of g * x over the elements of a parameter;
//   grad_input = (w * g - mean of w * g over the group - x * mean of w * g * x over the group) / sqrt(variance + eps).
// Where nothing binds MEAN, it is 0 and takes no part; the variance is then the mean square.
//
// A set is the elements of a group or of a parameter: `terms` of them, in runs of `inner` neighbours, `row_stride` apart.
// A team of LANES invocations goes over a set, or over one of several splits of it, whose results are put together after.
// All orders depend on shapes only. With VECTORS, everything is counted in vectors of four elements.
//
//   forward              a set per team: its statistics, then its output
//   moments, combine     the statistics of a split, of a set from its splits
//   normalize            the output, from statistics
//   grad_input           a set per team: its sums, then grad_input
//   sums                 the sums of g and of g * x over a split; `sum.combine` adds up splits
//   grad_input_from_sums grad_input, from sums over groups; without these, for statistics that do not depend on the input
//
// bindings   by name: a launch numbers what it binds, and defines each name as its number
//            INPUT, OUTPUT (grad_input too), GRAD_OUTPUT: any shape, all alike
//            MEAN, VARIANCE [groups], read; NEW_MEAN, NEW_VARIANCE [groups], written
//            WEIGHT, BIAS [parameters]
//            MOMENTS [groups, splits]: mean (less the group's first element) and sum of squares around it
//            SUM_G, SUM_GX [sets, splits], written; TOTAL_G, TOTAL_GX [groups], read
// constants  VECTORS, or BY_ELEMENT; RELU; CENTERED (subtract the mean); PER_ELEMENT (the elements of a run have a parameter each);
//            ONE_PARAMETER (all elements of a set have one);
//            BY_PARAMETER (sets are those of parameters); COLUMNS (a vector is of four sets side by side, LANES is 1);
//            WEIGHTED (sums over groups include w, which differs there)
// epilogue   forward, normalize, grad_input and grad_input_from_sums end in one (shared/fused.wgsl)
// in place   normalize, forward: input; grad_input, grad_input_from_sums: input or grad_output; all: operands of the epilogue
// dispatch   LANES invocations per set and split, 64 per workgroup (with subgroups LANES), folded
// workgroup  768 bytes (forward, moments, combine), 256 bytes (grad_input, sums), with subgroups 0 bytes
// source     https://arxiv.org/abs/1502.03167; Welford 1962, https://doi.org/10.2307/1266577 (updates of a mean and a sum
//            of squares); Chan, Golub, LeVeque 1979 (the same of two parts put together)
#import "shared/index.wgsl"

#ifdef VECTORS
alias Element = Storage4;
alias Value = Accum4;
const WIDTH: u32 = 4u;

fn across(v: Value) -> Accum {
    return (v.x + v.y) + (v.z + v.w);
}

fn first_of(v: Value) -> Accum {
    return v.x;
}
#else
alias Element = Storage;
alias Value = Accum;
const WIDTH: u32 = 1u;

fn across(v: Value) -> Accum {
    return v;
}

fn first_of(v: Value) -> Accum {
    return v;
}
#endif

#ifdef OUTPUT
@group(0) @binding(OUTPUT) var<storage, read_write> output: array<Element>;
#endif

// In place, an element is read before it is written, by the same team.
#ifdef INPUT
#ifdef IN_PLACE_0
fn input_at(i: u32) -> Value {
    return Value(output[i]);
}
#else
@group(0) @binding(INPUT) var<storage, read> input: array<Element>;

fn input_at(i: u32) -> Value {
    return Value(input[i]);
}
#endif
#endif

#ifdef GRAD_OUTPUT
#ifdef IN_PLACE_1
fn grad_output_at(i: u32) -> Value {
    return Value(output[i]);
}
#else
@group(0) @binding(GRAD_OUTPUT) var<storage, read> grad_output: array<Element>;

fn grad_output_at(i: u32) -> Value {
    return Value(grad_output[i]);
}
#endif
#endif

struct Statistics {
    mean: Accum,
    // 1 / sqrt(variance + eps)
    rstd: Accum,
}

fn statistics(mean: Accum, variance: Accum, eps: f32) -> Statistics {
    return Statistics(mean, 1.0 / sqrt(variance + eps));
}

#ifdef MEAN
@group(0) @binding(MEAN) var<storage, read> saved_mean: array<Accum>;

fn mean_of(group: u32) -> Accum {
    return saved_mean[group];
}
#else
fn mean_of(group: u32) -> Accum {
    return 0.0;
}
#endif

#ifdef VARIANCE
@group(0) @binding(VARIANCE) var<storage, read> saved_variance: array<Accum>;

fn statistics_of(group: u32, eps: f32) -> Statistics {
    return statistics(mean_of(group), saved_variance[group], eps);
}
#endif

#ifdef WEIGHT
#ifdef PER_ELEMENT
@group(0) @binding(WEIGHT) var<storage, read> weight: array<Element>;

fn weight_of(parameter: u32) -> Value {
    return Value(weight[parameter]);
}
#else
@group(0) @binding(WEIGHT) var<storage, read> weight: array<Storage>;

fn weight_of(parameter: u32) -> Value {
    return Value(Accum(weight[parameter]));
}
#endif
#else
fn weight_of(parameter: u32) -> Value {
    return Value(Accum(1.0));
}
#endif

#ifdef BIAS
#ifdef PER_ELEMENT
@group(0) @binding(BIAS) var<storage, read> bias: array<Element>;

fn bias_of(parameter: u32) -> Value {
    return Value(bias[parameter]);
}
#else
@group(0) @binding(BIAS) var<storage, read> bias: array<Storage>;

fn bias_of(parameter: u32) -> Value {
    return Value(Accum(bias[parameter]));
}
#endif
#else
fn bias_of(parameter: u32) -> Value {
    return Value(Accum(0.0));
}
#endif

struct Scale {
    weight: Value,
    bias: Value,
}

fn scale_of(parameter: u32) -> Scale {
    return Scale(weight_of(parameter), bias_of(parameter));
}

fn affine(x: Value, scale: Scale) -> Value {
    return x * scale.weight + scale.bias;
}

// NaN passes: a loss that went wrong must show.
fn activated(y: Value) -> Value {
#ifdef RELU
    return select(y, Value(Accum(0.0)), y < Value(Accum(0.0)));
#else
    return y;
#endif
}

// What is written at a place: with FUSED, what elementwise functions make of it.
#ifdef FUSED
fn runtime_number() -> u32 {
    return params.terms;
}

fn finished(y: Value, i: u32) -> Value {
#ifdef VECTORS
    return fused(y, i);
#else
    return fused(Accum4(y), i).x;
#endif
}
#else
fn finished(y: Value, i: u32) -> Value {
    return y;
}
#endif

struct Sums {
    g: Accum,
    gx: Accum,
}

#ifdef GRAD_OUTPUT
// The gradient of the normalized and scaled element, and the normalized element (0 where nobody needs it).
struct Gradient {
    g: Value,
    x: Value,
}

fn gradient_at(i: u32, scale: Scale, s: Statistics) -> Gradient {
#ifdef INPUT
    let x = (input_at(i) - s.mean) * s.rstd;
#else
    let x = Value(Accum(0.0));
#endif
    let g = grad_output_at(i);
#ifdef RELU
    return Gradient(select(Value(Accum(0.0)), g, affine(x, scale) > Value(Accum(0.0))), x);
#else
    return Gradient(g, x);
#endif
}

fn grad_input_of(d: Gradient, scale: Scale, s: Statistics, means: Sums) -> Value {
    let w = scale.weight;
#ifdef WEIGHTED
    return s.rstd * (w * d.g - (means.g + d.x * means.gx));
#else
    return s.rstd * w * (d.g - (means.g + d.x * means.gx));
#endif
}
#endif

#import "shared/norm_sets.wgsl"
