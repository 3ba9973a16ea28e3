//! Elementwise losses on the vectors and threads of a CPU.

use super::{ElementwiseLoss, channels};
use crate::native::lanes::{LANES, total};
use crate::native::{Fast, Kernel, Simd};
use crate::ops::loss::sample_weights::Repeated;
use crate::ops::place::{PIECE, Tensor, parts, sum_tasks};
use crate::ops::{Call, Resources};

/// What the value of each element is weighed by.
struct Weights<'a> {
    channels: Repeated<'a>,
    samples: Repeated<'a>,
}

impl<'a> Weights<'a> {
    /// `first` is the number of the first input behind the fixed ones.
    fn of<L: ElementwiseLoss>(loss: &L, call: &Call<'a, f32>, first: usize) -> Self {
        let (inner, _) = channels(loss, call.input_descs, first);
        let channels = if loss.weighted() { Repeated::new(call.input(first), inner) } else { Repeated::ONE };
        let count = call.input_descs[0].numel();
        Weights { channels, samples: Repeated::of_samples(call, loss.sample_weights(), count) }
    }
}

/// The sum of the values of elements.
struct Values<'a, L> {
    loss: L,
    x: &'a [f32],
    t: &'a [f32],
    weight: &'a [f32],
    factor: &'a [f32],
}

impl<L: ElementwiseLoss> Kernel for Values<'_, L> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> f32 {
        let Values { loss, x, t, weight, factor } = self;
        let mut lanes = [0.0; LANES];
        let whole = x.len() / LANES * LANES;
        for at in (0..whole).step_by(LANES) {
            let (x, t) = (&x[at..at + LANES], &t[at..at + LANES]);
            let (weight, factor) = (&weight[at..at + LANES], &factor[at..at + LANES]);
            for i in 0..LANES {
                lanes[i] += factor[i] * loss.value(Fast(x[i]), Fast(t[i]), Fast(weight[i])).0;
            }
        }
        let mut rest = [0.0; LANES];
        for (i, at) in (whole..x.len()).enumerate() {
            rest[i] = factor[at] * loss.value(Fast(x[at]), Fast(t[at]), Fast(weight[at])).0;
        }
        for i in 0..LANES {
            lanes[i] += rest[i];
        }
        total(lanes)
    }
}

/// Makes the derivatives of elements, times a factor of each.
struct Derivatives<'a, L> {
    loss: L,
    x: &'a [f32],
    t: &'a [f32],
    weight: &'a [f32],
    factor: &'a [f32],
    output: &'a mut [f32],
}

impl<L: ElementwiseLoss> Kernel for Derivatives<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Derivatives { loss, x, t, weight, factor, output } = self;
        let length = output.len();
        let (x, t, weight, factor) = (&x[..length], &t[..length], &weight[..length], &factor[..length]);
        for i in 0..length {
            output[i] = factor[i] * loss.gradient(Fast(x[i]), Fast(t[i]), Fast(weight[i])).0;
        }
    }
}

/// Runs the mean.
pub(in crate::ops) fn forward<L: ElementwiseLoss>(loss: &L, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let (x, t) = (call.input(0), call.input(1));
    let weights = Weights::of(loss, call, 2);
    let level = with.cores.level();
    let sum = sum_tasks(with.cores, x.len(), 1, |range| {
        let [mut weight, mut factor] = [[0.0; PIECE]; 2];
        let mut sum = 0.0;
        for part in parts(range, PIECE) {
            let weight = weights.channels.spread(part.start, &mut weight[..part.len()]);
            let factor = weights.samples.spread(part.start, &mut factor[..part.len()]);
            let (x, t) = (&x[part.clone()], &t[part]);
            sum += f64::from(level.run(Values { loss: *loss, x, t, weight, factor }));
        }
        sum
    });
    call.output(0)[0] = (sum / x.len() as f64) as f32;
}

/// Runs the gradient; inputs `input, target, grad_loss`, and all weights that there are.
pub(super) fn grad_input<L: ElementwiseLoss>(loss: &L, sign: f32, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let (x, t) = (Tensor::of(call, 0), Tensor::of(call, 1));
    let weights = Weights::of(loss, call, 3);
    let scale = sign / call.input_descs[0].numel() as f32 * call.input(2)[0];
    let level = with.cores.level();
    with.cores.pieces(call.output(0), |start, output| {
        let [mut weight, mut factor, mut room, mut room_t] = [[0.0; PIECE]; 4];
        for part in parts(0..output.len(), PIECE) {
            let (start, output) = (start + part.start, &mut output[part]);
            let weight = weights.channels.spread(start, &mut weight[..output.len()]);
            let factor = weights.samples.spread(start, &mut factor[..output.len()]);
            factor.iter_mut().for_each(|factor| *factor *= scale);
            let (x, t) = (x.fetch(start, output, &mut room), t.fetch(start, output, &mut room_t));
            level.run(Derivatives { loss: *loss, x, t, weight, factor, output });
        }
    });
}
