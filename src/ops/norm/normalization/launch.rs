//! The launches of a normalization; `shaders/shared/norm.wgsl` says what the kernels do and what they call tensors.

use super::sets::{Sets, Walk};
use super::{Normalization, Places};
use crate::ops::reduce::reduction;
use crate::ops::{Dispatch, Slot};
use crate::shader::{Family, Target};
use crate::tensor::Shape;

/// Partial statistics from which a whole workgroup puts them together.
const LONG_COMBINE: usize = 32;

/// Elements that an invocation adds one after the other, as in the kernels: each such block is one more loop iteration.
const BLOCK_TERMS: usize = 32;

/// Tensors by the names that kernels have for them; `None` is left out.
type Bound = Vec<(&'static str, Option<Slot>)>;

/// Launches, and the workspaces that they need in bytes.
#[derive(Debug, Default)]
pub(in crate::ops) struct Launches {
    pub(in crate::ops) dispatches: Vec<Dispatch>,
    pub(in crate::ops) workspaces: Vec<u64>,
}

/// Whose elements a kernel goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Group,
    Parameter,
}

params! {
    /// Parameters of all kernels.
    struct Params {
        sets: u32,
        terms: u32,
        splits: u32,
        split_terms: u32,
        inner: u32,
        set_stride: u32,
        row_stride: u32,
        step_rows: u32,
        step_inner: u32,
        other_divisor: u32,
        other_modulus: u32,
        other_factor: u32,
        other_step: u32,
        eps: f32,
        inverse_terms: f32,
    }
}

/// A normalization of tensors of one shape.
struct Builder<'a> {
    norm: &'a Normalization,
    target: &'a Target,
    groups: Sets,
    parameters: Sets,
    launches: Launches,
}

/// What forward and backward read.
fn read(places: &Places) -> Bound {
    let slot = |place: Option<usize>| place.map(Slot::Input);
    vec![
        ("INPUT", slot(places.input)),
        ("GRAD_OUTPUT", slot(places.grad_output)),
        ("MEAN", slot(places.mean)),
        ("VARIANCE", slot(places.variance)),
        ("WEIGHT", slot(places.weight)),
        ("BIAS", slot(places.bias)),
    ]
}

impl<'a> Builder<'a> {
    fn new(norm: &'a Normalization, shape: &Shape, target: &'a Target) -> Self {
        let [groups, parameters] = norm.grouping.sets(shape);
        Builder { norm, target, groups, parameters, launches: Launches::default() }
    }

    fn workspace(&mut self, numbers: usize) -> Slot {
        self.launches.workspaces.push(numbers as u64 * 4);
        Slot::Workspace(self.launches.workspaces.len() - 1)
    }

    fn inverse_terms(&self) -> f32 {
        1.0 / self.groups.terms() as f32
    }

    /// A launch that binds what is there, with each name defined as the number of its binding.
    fn bind(&self, entry: &'static str, bound: Bound, width: usize, flags: &[(&'static str, bool)]) -> Dispatch {
        let bound: Vec<_> = bound.into_iter().filter_map(|(name, slot)| Some((name, slot?))).collect();
        let slots: Vec<_> = bound.iter().map(|&(_, slot)| slot).collect();
        let mut dispatch = Dispatch::new(self.norm.op, entry, slots);
        for (number, (name, _)) in bound.into_iter().enumerate() {
            dispatch = dispatch.constant(name, number as u32);
        }
        dispatch.flags([("VECTORS", width > 1), ("BY_ELEMENT", width == 1)]).flags(flags.iter().copied())
    }

    /// A launch of a team for each set and split, which goes `passes` times over its elements.
    fn over_sets(
        &mut self,
        entry: &'static str,
        walk: &Walk,
        passes: usize,
        bound: Bound,
        flags: &[(&'static str, bool)],
    ) {
        let walk = &walk.on(self.target);
        let per_element = flags.contains(&("PER_ELEMENT", true));
        let one_parameter = ("ONE_PARAMETER", walk.sets.other_step == 0 && !per_element);
        let dispatch = self
            .bind(entry, bound, walk.width, &[flags, &[one_parameter]].concat())
            .params(&self.params(walk))
            .loops(passes * (walk.iterations() + walk.iterations().div_ceil(BLOCK_TERMS)) + 2 * 64)
            .family(walk.family);
        self.launches.dispatches.push(match walk.family {
            Family::Subgroup { .. } => dispatch.constant("LANES", walk.lanes as u32).linear(walk.teams()),
            Family::Workgroup | Family::Cooperative { .. } => reduction::over_rows(dispatch, walk.teams(), walk.lanes),
        });
    }

    fn params(&self, walk: &Walk) -> Params {
        let sets = walk.sets;
        Params {
            sets: sets.sets as u32,
            terms: sets.terms() as u32,
            splits: walk.splits as u32,
            split_terms: walk.split_terms as u32,
            inner: sets.inner as u32,
            set_stride: sets.set_stride as u32,
            row_stride: sets.row_stride as u32,
            step_rows: (walk.lanes / sets.inner) as u32,
            step_inner: (walk.lanes % sets.inner) as u32,
            other_divisor: sets.other_divisor as u32,
            other_modulus: sets.other_modulus as u32,
            other_factor: sets.other_factor as u32,
            other_step: sets.other_step as u32,
            eps: self.norm.eps,
            inverse_terms: self.inverse_terms(),
        }
    }

    /// A launch that goes once over the elements of each group, with statistics and sums that are there.
    fn over_elements(&mut self, entry: &'static str, bound: Bound, weighted: bool) {
        let flags =
            [("RELU", self.norm.relu), ("PER_ELEMENT", self.norm.grouping.per_element()), ("WEIGHTED", weighted)];
        self.over_sets(entry, &Walk::over_elements(&self.groups), 1, bound, &flags);
    }

    /// Whether sums over groups must take the weights in, because they differ within a group.
    fn weighted(&self) -> bool {
        self.groups != self.parameters && self.norm.affine.has_weight()
    }

    /// Writes the sums of g and of g · x over each set.
    fn sums(&mut self, by: By, places: &Places, outputs: [Option<Slot>; 2]) {
        let sets = if by == By::Group { self.groups } else { self.parameters };
        let shared = self.groups == self.parameters;
        let walk = Walk::reducing(&sets);
        let weighted = by == By::Group && self.weighted();
        let needs_normalized = outputs[1].is_some() || self.norm.relu;
        let mut bound = read(places);
        bound.retain(|&(name, _)| match name {
            "INPUT" | "MEAN" | "VARIANCE" => needs_normalized,
            "WEIGHT" => weighted || self.norm.relu,
            _ => true,
        });
        let flags = [
            ("RELU", self.norm.relu),
            ("PER_ELEMENT", by == By::Group && self.norm.grouping.per_element()),
            ("BY_PARAMETER", by == By::Parameter && !shared),
            ("COLUMNS", walk.sets.columns),
            ("WEIGHTED", weighted),
        ];
        let partial = outputs.map(|output| match output {
            Some(_) if walk.splits > 1 => Some(self.workspace(walk.sums())),
            output => output,
        });
        bound.extend([("SUM_G", partial[0]), ("SUM_GX", partial[1])]);
        self.over_sets("sums", &walk, 1, bound, &flags);
        if walk.splits > 1 {
            let combine = |(partial, output): (Option<Slot>, Option<Slot>)| {
                Some(reduction::combine(partial?, output?, sets.sets, walk.splits, 1.0))
            };
            self.launches.dispatches.extend(partial.into_iter().zip(outputs).filter_map(combine));
        }
    }
}

/// The launches of forward by statistics of the input: `outputs` are the output, the mean where it is subtracted, and the
/// variance.
pub(super) fn forward(norm: &Normalization, shape: &Shape, places: &Places, target: &Target) -> Launches {
    let mut builder = Builder::new(norm, shape, target);
    let walk = Walk::reducing(&builder.groups);
    let output = ("OUTPUT", Some(Slot::Output(0)));
    let mean = norm.centered.then_some(Slot::Output(1));
    let variance = Some(Slot::Output(1 + usize::from(norm.centered)));
    let centered = ("CENTERED", norm.centered);
    let new = [("NEW_MEAN", mean), ("NEW_VARIANCE", variance)];
    let mut bound = read(places);
    if walk.splits == 1 {
        bound.push(output);
        bound.extend(new);
        let flags = [centered, ("RELU", norm.relu), ("PER_ELEMENT", norm.grouping.per_element())];
        builder.over_sets("forward", &walk, 2, bound, &flags);
        return builder.launches;
    }
    let input = bound[0];
    let moments = ("MOMENTS", Some(builder.workspace(2 * walk.teams())));
    builder.over_sets("moments", &walk, 1, vec![input, moments], &[centered]);
    let mut of_sets = vec![moments];
    of_sets.extend(new);
    // The numbers that the moments are of lack the first of their group.
    of_sets.extend(norm.centered.then_some(input));
    let lanes = reduction::lanes(walk.splits, LONG_COMBINE);
    let dispatch = builder
        .bind("combine", of_sets, walk.width, &[centered])
        .params(&builder.params(&walk))
        .loops(walk.splits.div_ceil(lanes) + 64);
    builder.launches.dispatches.push(reduction::over_rows(dispatch, walk.sets.sets, lanes));
    bound.extend([("MEAN", mean), ("VARIANCE", variance), output]);
    builder.over_elements("normalize", bound, false);
    builder.launches
}

/// The launch of forward by given statistics.
pub(super) fn normalize(norm: &Normalization, shape: &Shape, places: &Places, target: &Target) -> Launches {
    let mut builder = Builder::new(norm, shape, target);
    let mut bound = read(places);
    bound.push(("OUTPUT", Some(Slot::Output(0))));
    builder.over_elements("normalize", bound, false);
    builder.launches
}

/// The launches of backward: `outputs` are the wanted ones of the gradients of input, weight and bias.
pub(super) fn backward(
    norm: &Normalization,
    shape: &Shape,
    places: &Places,
    outputs: [Option<Slot>; 3],
    target: &Target,
) -> Launches {
    let mut builder = Builder::new(norm, shape, target);
    let [grad_input, grad_weight, grad_bias] = outputs;
    let shared = builder.groups == builder.parameters;
    let depends = grad_input.is_some() && !norm.frozen;
    let of_parameters = [grad_bias, grad_weight];
    if of_parameters != [None; 2] && !(depends && shared) {
        builder.sums(By::Parameter, places, of_parameters);
    }
    let Some(output) = grad_input else { return builder.launches };
    let mut bound = read(places);
    if !norm.relu {
        bound.retain(|&(name, _)| name != "BIAS");
    }
    let output = ("OUTPUT", Some(output));
    if norm.frozen && places.input.is_none() {
        // The gradient goes through the linear part of what forward does.
        let scaled = places.grad_output.map(Slot::Input);
        bound.retain(|&(name, _)| matches!(name, "VARIANCE" | "WEIGHT"));
        bound.extend([("INPUT", scaled), output]);
        builder.over_elements("normalize", bound, false);
        return builder.launches;
    }
    let weighted = builder.weighted();
    if norm.frozen {
        bound.push(output);
        builder.over_elements("grad_input_from_sums", bound, weighted);
        return builder.launches;
    }
    let walk = Walk::reducing(&builder.groups);
    if walk.splits == 1 {
        let flags = [
            ("CENTERED", norm.centered),
            ("RELU", norm.relu),
            ("PER_ELEMENT", norm.grouping.per_element()),
            ("WEIGHTED", weighted),
        ];
        bound.push(output);
        if shared {
            bound.extend([("SUM_G", grad_bias), ("SUM_GX", grad_weight)]);
        }
        builder.over_sets("grad_input", &walk, 2, bound, &flags);
        return builder.launches;
    }
    let wanted = [norm.centered, true];
    let totals = [0, 1].map(|i| {
        let of_parameter = of_parameters[i].filter(|_| shared);
        of_parameter.or_else(|| wanted[i].then(|| builder.workspace(builder.groups.sets)))
    });
    builder.sums(By::Group, places, totals);
    bound.extend([("TOTAL_G", totals[0]), ("TOTAL_GX", totals[1]), output]);
    builder.over_elements("grad_input_from_sums", bound, weighted);
    builder.launches
}
