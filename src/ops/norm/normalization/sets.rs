//! How the elements of a tensor form groups, and which elements have one parameter; how kernels go over either.

use std::ops::Range;

use crate::error::OpError;
use crate::shader::{Family, Target};
use crate::tensor::{Shape, TensorDesc};

/// Elements (or vectors of them) that one invocation adds before a set is worth splitting.
const REDUCED_PER_LANE: usize = 32;
/// Those that one invocation goes over where nothing is added.
const ELEMENTS_PER_LANE: usize = 8;
/// Most that one goes over, so that two passes keep well within the loop iterations of an invocation.
const MAX_TERMS_PER_LANE: usize = 16_384;
/// Most splits of a set that are made for speed.
const MAX_SPLITS: usize = 1024;
/// Invocations that keep any device busy.
const ENOUGH_INVOCATIONS: usize = 1 << 17;
/// Sizes of teams: up to a workgroup.
const TEAMS: [usize; 3] = [1, 8, 64];
/// Sets side by side from which on each invocation takes one.
const BESIDE: usize = 8;

/// Which elements are normalized together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Grouping {
    /// All of one channel of `[N, C, …]`.
    Channels,
    /// Those of a sample in one of so many groups of channels of `[N, C, …]`.
    Groups(usize),
    /// Those along so many last axes.
    Rows(usize),
}

/// The elements of each group or of each parameter: `rows` runs of `inner` neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sets {
    /// How many there are.
    pub(super) sets: usize,
    pub(super) rows: usize,
    pub(super) inner: usize,
    /// Elements from one set to the next.
    pub(super) set_stride: usize,
    /// Elements from one run of a set to the next.
    pub(super) row_stride: usize,
    /// The parameter of a group's run, or the group of a parameter's:
    /// `set / divisor % modulus * factor + row * step`.
    pub(super) other_divisor: usize,
    pub(super) other_modulus: usize,
    pub(super) other_factor: usize,
    pub(super) other_step: usize,
    /// Whether sets of one element per run lie side by side and can be taken in vectors of four, each of another set.
    pub(super) columns: bool,
}

impl Grouping {
    /// Checks that a tensor has such groups.
    pub(super) fn check(self, op: &'static str, input: &TensorDesc) -> Result<(), OpError> {
        let rank = input.shape.len();
        let wrong = |expected: &str| {
            Err(OpError::Input { op, input: "input", expected: expected.to_owned(), found: input.clone() })
        };
        let refuse = |setting, value: usize, reason: String| {
            Err(OpError::Setting { op, setting, value: value.to_string(), reason })
        };
        if rank < 2 {
            return wrong("of at least 2 dimensions");
        }
        if input.numel() == 0 {
            return wrong("of at least one element");
        }
        match self {
            Grouping::Channels => Ok(()),
            Grouping::Groups(groups) => {
                let channels = input.shape[1];
                if groups == 0 || !channels.is_multiple_of(groups) {
                    return refuse("groups", groups, format!("it must divide the {channels} channels of {input}"));
                }
                Ok(())
            }
            // The first axis is the batch: if it took part, samples would not be independent.
            Grouping::Rows(dims) if dims == 0 || dims >= rank => {
                refuse("dims", dims, format!("it must be 1 to {}, all axes of {input} but the first", rank - 1))
            }
            Grouping::Rows(_) => Ok(()),
        }
    }

    /// Shape of statistics.
    pub(super) fn statistics(self, shape: &Shape) -> Shape {
        match self {
            Grouping::Channels => [shape[1]].into(),
            Grouping::Groups(groups) => [shape[0], groups].into(),
            Grouping::Rows(dims) => Shape::from(&shape[..shape.len() - dims]),
        }
    }

    /// Shape of weight and bias.
    pub(super) fn parameters(self, shape: &Shape) -> Shape {
        match self {
            Grouping::Channels | Grouping::Groups(_) => [shape[1]].into(),
            Grouping::Rows(dims) => Shape::from(&shape[shape.len() - dims..]),
        }
    }

    /// Whether the elements of a run have a parameter each.
    pub(super) fn per_element(self) -> bool {
        matches!(self, Grouping::Rows(_))
    }

    /// The sets that are normalized, and those that share a parameter.
    pub(super) fn sets(self, shape: &Shape) -> [Sets; 2] {
        let inner = shape[2.min(shape.len())..].iter().product();
        let (samples, channels) = (shape[0], shape[1]);
        let by_channel = Sets {
            sets: channels,
            rows: samples,
            inner,
            set_stride: inner,
            row_stride: channels * inner,
            other_divisor: 1,
            other_modulus: channels,
            other_factor: 1,
            other_step: 0,
            columns: false,
        };
        match self {
            Grouping::Channels => [by_channel; 2],
            Grouping::Groups(groups) => {
                let of_group = channels / groups;
                let by_group = Sets {
                    sets: samples * groups,
                    rows: of_group,
                    inner,
                    set_stride: of_group * inner,
                    row_stride: inner,
                    other_divisor: 1,
                    other_modulus: groups,
                    other_factor: of_group,
                    other_step: 1,
                    columns: false,
                };
                let by_channel =
                    Sets { other_divisor: of_group, other_modulus: groups, other_step: groups, ..by_channel };
                [by_group, by_channel]
            }
            Grouping::Rows(dims) => {
                let width: usize = shape[shape.len() - dims..].iter().product();
                let rows = shape.numel() / width;
                let along = Sets {
                    sets: rows,
                    rows: 1,
                    inner: width,
                    set_stride: width,
                    row_stride: width,
                    other_divisor: 1,
                    other_modulus: 1,
                    other_factor: 0,
                    other_step: 0,
                    columns: false,
                };
                let columns = width.is_multiple_of(4);
                let across = Sets { sets: width, rows, inner: 1, set_stride: 1, other_step: 1, columns, ..along };
                [along, across]
            }
        }
    }
}

impl Sets {
    /// Elements of a set.
    pub(super) fn terms(&self) -> usize {
        self.rows * self.inner
    }

    /// The runs of a set: where each lies, and the parameter or the group that goes with it.
    pub(super) fn runs(self, set: usize) -> impl Iterator<Item = (Range<usize>, usize)> + Clone {
        let other = set / self.other_divisor % self.other_modulus * self.other_factor;
        (0..self.rows).map(move |row| {
            let start = set * self.set_stride + row * self.row_stride;
            (start..start + self.inner, other + row * self.other_step)
        })
    }

    /// In how many elements at a time they can be taken.
    pub(super) fn width(&self) -> usize {
        if self.columns || self.inner.is_multiple_of(4) { 4 } else { 1 }
    }
}

/// How a kernel goes over sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Counted in vectors of `width` elements.
    pub(super) sets: Sets,
    pub(super) width: usize,
    /// Invocations of a team.
    pub(super) lanes: usize,
    /// With subgroups, a team is one.
    pub(super) family: Family,
    /// Over how many teams a set is split, and the elements that each takes (the last may have fewer).
    pub(super) splits: usize,
    pub(super) split_terms: usize,
}

impl Walk {
    /// For a kernel that makes sums.
    pub(super) fn reducing(sets: &Sets) -> Self {
        Walk::new(sets, REDUCED_PER_LANE)
    }

    /// For a kernel that does not.
    pub(super) fn over_elements(sets: &Sets) -> Self {
        Walk::new(sets, ELEMENTS_PER_LANE)
    }

    fn new(sets: &Sets, terms_per_lane: usize) -> Self {
        let width = sets.width();
        let row_stride = sets.row_stride / width;
        let sets = if sets.columns {
            Sets { sets: sets.sets / width, row_stride, ..*sets }
        } else {
            Sets { inner: sets.inner / width, set_stride: sets.set_stride / width, row_stride, ..*sets }
        };
        let terms = sets.terms();
        // Of sets side by side, neighbouring invocations read neighbouring elements if each has a set. Else there are few
        // sizes of teams, so that few kernels are compiled.
        let beside = sets.columns || (sets.set_stride == 1 && sets.sets >= BESIDE);
        let lanes = if beside { 1 } else { TEAMS.into_iter().rfind(|lanes| terms >= 4 * lanes).unwrap_or(1) };
        let useful = terms / (lanes * terms_per_lane);
        let enough = ENOUGH_INVOCATIONS / (sets.sets * lanes);
        let splits = useful.min(enough).clamp(1, MAX_SPLITS).max(terms.div_ceil(lanes * MAX_TERMS_PER_LANE));
        let split_terms = terms.div_ceil(splits);
        Walk { sets, width, lanes, family: Family::Workgroup, splits: terms.div_ceil(split_terms), split_terms }
    }

    /// The same with teams of a subgroup, where the target has subgroups and they can do it: without workgroup memory, and
    /// without barriers, which cost a CPU more than fewer lanes. Sets and splits stay as they are, so the plan does not depend
    /// on it.
    pub(super) fn on(self, target: &Target) -> Self {
        let Family::Subgroup { size } = target.family else { return self };
        let lanes = size as usize;
        let teams = Walk { lanes, family: target.family, ..self };
        let fits = self.lanes > 1 && teams.iterations() <= MAX_TERMS_PER_LANE;
        if fits { teams } else { self }
    }

    /// Teams of a launch.
    pub(super) fn teams(&self) -> usize {
        self.sets.sets * self.splits
    }

    /// Sums that the teams of a launch write.
    pub(super) fn sums(&self) -> usize {
        if self.sets.columns { self.teams() * self.width } else { self.teams() }
    }

    /// Most elements that an invocation goes over.
    pub(super) fn iterations(&self) -> usize {
        self.split_terms.div_ceil(self.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each element is in one group and has one parameter, and both walks agree on which.
    #[test]
    fn groups_and_parameters_cover_all_elements_alike() {
        for (grouping, shape) in [
            (Grouping::Channels, vec![3, 4]),
            (Grouping::Channels, vec![2, 3, 5]),
            (Grouping::Groups(1), vec![2, 6]),
            (Grouping::Groups(3), vec![2, 6, 4]),
            (Grouping::Groups(6), vec![3, 6, 2, 2]),
            (Grouping::Rows(1), vec![5, 3]),
            (Grouping::Rows(2), vec![2, 3, 4, 5]),
            (Grouping::Rows(3), vec![1, 2, 3, 4]),
        ] {
            let shape = Shape::from(&shape[..]);
            let [groups, parameters] = grouping.sets(&shape);
            assert_eq!(groups.sets, grouping.statistics(&shape).numel());
            assert_eq!(parameters.sets, grouping.parameters(&shape).numel());
            let mut found = vec![None; shape.numel()];
            for group in 0..groups.sets {
                for (run, parameter) in groups.runs(group) {
                    for (k, i) in run.enumerate() {
                        let parameter = if grouping.per_element() { k } else { parameter };
                        assert_eq!(found[i].replace((group, parameter)), None, "{grouping:?} {shape}");
                    }
                }
            }
            let mut seen = 0;
            for parameter in 0..parameters.sets {
                for (run, group) in parameters.runs(parameter) {
                    let group = if grouping == Grouping::Channels { parameter } else { group };
                    for i in run {
                        assert_eq!(found[i], Some((group, parameter)), "{grouping:?} {shape}");
                        seen += 1;
                    }
                }
            }
            assert_eq!(seen, shape.numel());
        }
    }

    #[test]
    fn no_invocation_goes_over_too_much_and_no_split_is_empty() {
        for sets in [1, 3, 64, 100_000] {
            for (rows, inner) in
                [(1, 1), (1, 63), (1 << 20, 1), (7, 513), (1, 1 << 28), (8, 512 * 512), (1, 16_777_259)]
            {
                for set_stride in [1, inner] {
                    let sets = Sets { sets, rows, inner, set_stride, ..Grouping::Channels.sets(&[1, 1].into())[0] };
                    let walk = Walk::reducing(&sets);
                    assert!(walk.iterations() <= MAX_TERMS_PER_LANE, "{walk:?}");
                    assert!(walk.split_terms * (walk.splits - 1) < walk.sets.terms(), "{walk:?}");
                    assert!(walk.split_terms * walk.splits >= walk.sets.terms(), "{walk:?}");
                }
            }
        }
    }

    #[test]
    fn a_channel_of_large_planes_has_many_invocations() {
        let [groups, _] = Grouping::Channels.sets(&[8, 1, 512, 512].into());
        let walk = Walk::reducing(&groups);
        assert!(walk.teams() * walk.lanes >= 16_384, "{walk:?}");
    }
}
