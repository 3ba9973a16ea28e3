//! The native form: blocks one after the other, each decoded, moved and encoded while it is in the first cache.

use super::codes::{SIGNED, UNSIGNED};
use super::{BLOCK, Changed, LEAST_SCALE, Step};
use crate::native::{Fast, Kernel, Simd, lanes};
use crate::ops::optim::adam;
use crate::ops::optim::update::ElementwiseUpdate;
use crate::ops::{Call, HYPER_LEN, Native, Resources};

/// Blocks that are worth a task, and tasks for each thread.
const LEAST_BLOCKS: usize = 8;
const TASKS: usize = 4;

impl Native for Step {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(6), call.input(7)[0]);
        if !guard.is_finite() {
            return;
        }
        let Changed { parameter, codes: [m, v], scales: [m_scale, v_scale] } = Changed::of(&mut call.mutated);
        let hyper: [Fast; HYPER_LEN] = std::array::from_fn(|i| Fast(hyper[i]));
        let blocks = m_scale.len().div_ceil(TASKS * with.cores.threads()).max(LEAST_BLOCKS);
        let moments = bytemuck::cast_slice_mut::<_, [u8; BLOCK]>(m).chunks_mut(blocks);
        let moments = moments.zip(bytemuck::cast_slice_mut::<_, [u8; BLOCK]>(v).chunks_mut(blocks));
        let scales = m_scale.chunks_mut(blocks).zip(v_scale.chunks_mut(blocks));
        let elements = parameter.chunks_mut(blocks * BLOCK).zip(gradient.chunks(blocks * BLOCK));
        let mut tasks: Vec<_> = moments.zip(scales).zip(elements).collect();
        let level = with.cores.level();
        with.cores.each(&mut tasks, |_, (((m, v), (m_scale, v_scale)), (parameter, gradient))| {
            let (codes, scales) = ([&mut **m, &mut **v], [&mut **m_scale, &mut **v_scale]);
            level.run(Blocks { step: self.0, hyper, parameter, gradient, codes, scales });
        });
    }
}

/// Some blocks.
struct Blocks<'a> {
    step: adam::Step,
    hyper: [Fast; HYPER_LEN],
    parameter: &'a mut [f32],
    gradient: &'a [f32],
    codes: [&'a mut [[u8; BLOCK]]; 2],
    scales: [&'a mut [f32]; 2],
}

impl Kernel for Blocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Blocks { step, hyper, parameter, gradient, codes: [m_codes, v_codes], scales: [m_scales, v_scales] } = self;
        let elements = parameter.chunks_mut(BLOCK).zip(gradient.chunks(BLOCK));
        for (block, (parameter, gradient)) in elements.enumerate() {
            let (m_codes, v_codes) = (&mut m_codes[block], &mut v_codes[block]);
            let (m_scale, v_scale) = (&mut m_scales[block], &mut v_scales[block]);
            let (mut m, mut v) = ([0.0; BLOCK], [0.0; BLOCK]);
            SIGNED.decode(m_codes, *m_scale, &mut m);
            UNSIGNED.decode(v_codes, *v_scale, &mut v);
            let count = parameter.len();
            let gradient = &gradient[..count];
            for i in 0..count {
                let mut states = [Fast(m[i]), Fast(v[i])];
                parameter[i] = step.step(&hyper, Fast(parameter[i]), Fast(gradient[i]), &mut states).0;
                [m[i], v[i]] = states.map(|state| state.0);
            }
            // What lies past the end is 0.
            m[count..].fill(0.0);
            v[count..].fill(0.0);
            let mut sizes = [0.0; BLOCK];
            for i in 0..BLOCK {
                sizes[i] = m[i].abs();
            }
            *m_scale = lanes::larger(LEAST_SCALE, lanes::largest(simd, &sizes));
            *v_scale = lanes::larger(LEAST_SCALE, lanes::largest(simd, &v));
            SIGNED.encode(simd, [&m, &sizes], *m_scale, m_codes);
            UNSIGNED.encode(simd, [&v, &v], *v_scale, v_codes);
        }
    }
}
