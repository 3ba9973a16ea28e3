//! Sequences for deep graphs: the forward part as a chain of segments, and dynamic programming over what to keep at
//! their boundaries.
//!
//! To go backward through segments `i..j` from the values at the boundary before `i`, either run forward to a boundary
//! `s`, keep its values, do `s..j` and then `i..s` (Griewank and Walther, "Algorithm 799: revolve", 2000); or run forward
//! through segment `s` keeping all that its backward part needs, do `s + 1..j`, then that backward part, then `i..s`
//! ("rotor": Herrmann et al., "Optimal checkpointing for heterogeneous chains", 2019; for recurrent nets Gruslys et al.,
//! "Memory-efficient backpropagation through time", 2016). The memory model is rough; the exact simulator judges what
//! comes of it.

use super::problem::Problem;
use super::seeds::most_entries;
use super::sequence::Entry;
use super::tables::{Step, Tables, Taken, table_levels};

/// Segments that a chain is cut into at most, unless all are alike.
const SEGMENTS: usize = 48;
/// Steps that memory is measured in, where segments are not alike.
const LEVELS: usize = 160;
/// Segments that are alike, at most.
const ALIKE: usize = 4096;

/// Operations of the forward part between two boundaries.
#[derive(Clone, Debug)]
struct Segment {
    /// Values that cross the boundary before it.
    boundary: Vec<usize>,
    boundary_bytes: u64,
    /// Of these, what its backward part does not read.
    released_bytes: u64,
    /// Values that its backward part reads, without those of the next boundary: made by it, and all.
    saved: Vec<usize>,
    saved_bytes: u64,
    taped: Vec<usize>,
    taped_bytes: u64,
    /// Of running it to the next boundary.
    cost: u64,
    /// Of making what its backward part reads.
    saved_cost: u64,
}

/// The forward part of a problem as a chain.
pub(crate) struct Chain<'a> {
    problem: &'a Problem,
    last_forward: usize,
    segments: Vec<Segment>,
    /// Segment of each operation of the forward part.
    segment_of: Vec<usize>,
    /// Bytes of one level of the tables.
    unit_bytes: u64,
    alike: bool,
}

impl<'a> Chain<'a> {
    /// The chain of the operations up to `last_forward`.
    pub(crate) fn new(problem: &'a Problem, last_forward: usize) -> Chain<'a> {
        let cuts = cuts(problem, last_forward);
        let mut chain = Chain::of_cuts(problem, last_forward, &cuts);
        if !chain.alike && chain.segments.len() > SEGMENTS {
            // The cheapest boundaries, spread over the chain.
            let group = cuts.len().div_ceil(SEGMENTS - 1);
            let cheapest = |cuts: &[Cut]| cuts.iter().copied().min_by_key(|cut| cut.bytes);
            let fewer: Vec<_> = cuts.chunks(group).filter_map(cheapest).collect();
            chain = Chain::of_cuts(problem, last_forward, &fewer);
        }
        chain
    }

    fn of_cuts(problem: &'a Problem, last_forward: usize, cuts: &[Cut]) -> Chain<'a> {
        let values = problem.values();
        let mut segment_of = vec![0; last_forward + 1];
        let mut starts = vec![0];
        starts.extend(cuts.iter().map(|cut| cut.after + 1));
        for (number, &start) in starts.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(last_forward + 1);
            segment_of[start..end].fill(number);
        }
        let crossing = crossing(problem, last_forward, &starts);
        let mut segments = Vec::with_capacity(starts.len());
        for (number, boundary) in crossing.into_iter().enumerate() {
            let start = starts[number];
            let end = starts.get(number + 1).copied().unwrap_or(last_forward + 1);
            let made = (start..end).flat_map(|operation| problem.outputs(operation).iter().map(|&v| v as usize));
            let read_later =
                |v: &usize| problem.readers(*v).last().is_some_and(|&reader| reader as usize > last_forward);
            let saved: Vec<_> = made.filter(read_later).collect();
            // Other backward parts read what comes from farther back.
            let made_before = |v: usize| values[v].producer.map(|producer| segment_of[producer as usize] + 1);
            let read_here = |v: &usize| made_before(*v) == Some(number) && read_later(v);
            let taped: Vec<_> = boundary.iter().copied().filter(read_here).collect();
            let bytes = |of: &[usize]| of.iter().map(|&v| values[v].bytes).sum::<u64>();
            segments.push(Segment {
                boundary_bytes: bytes(&boundary),
                released_bytes: bytes(&boundary) - bytes(&taped),
                boundary,
                saved,
                saved_bytes: 0,
                taped,
                taped_bytes: 0,
                cost: (start..end).map(|operation| problem.cost(operation)).sum(),
                saved_cost: 0,
            });
        }
        for number in 0..segments.len() {
            let next: Vec<usize> = segments.get(number + 1).map_or_else(Vec::new, |next| next.boundary.clone());
            let segment = &mut segments[number];
            segment.saved.retain(|v| next.binary_search(v).is_err());
            segment.saved_bytes = segment.saved.iter().map(|&v| values[v].bytes).sum();
            segment.taped.extend(&segment.saved);
            segment.taped_bytes = segment.taped.iter().map(|&v| values[v].bytes).sum();
            if !segment.saved.is_empty() {
                segment.saved_cost = segment.cost;
            }
        }
        let figures = |of: &Segment| {
            (of.boundary_bytes, of.released_bytes, of.saved_bytes, of.taped_bytes, of.cost, of.saved_cost)
        };
        let same = |a: &Segment, b: &Segment| figures(a) == figures(b);
        // The ends of a chain may differ.
        let inner = segments.get(1..segments.len() - 1).unwrap_or(&[]);
        let alike = inner.len() > 2 && inner.len() <= ALIKE && inner.windows(2).all(|pair| same(&pair[0], &pair[1]));
        let sizes = inner.first().map_or((0, 0), |segment| (segment.boundary_bytes, segment.saved_bytes));
        let total: u64 = segments.iter().map(|segment| segment.boundary_bytes + segment.saved_bytes).sum();
        let common = greatest_common_divisor(sizes.0, sizes.1);
        let most = table_levels(segments.len(), sizes.1 > 0) as u64 / 2;
        let unit_bytes = if alike && common > 0 && sizes.0.max(sizes.1) / common <= most {
            common
        } else {
            total.div_ceil(LEVELS as u64)
        };
        Chain { problem, last_forward, segments, segment_of, unit_bytes: unit_bytes.max(1), alike }
    }

    fn tables(&self) -> Tables {
        let level = |bytes: u64| bytes.div_ceil(self.unit_bytes) as usize;
        let taken = |segment: &Segment| Taken {
            boundary: level(segment.boundary_bytes),
            released: (segment.released_bytes / self.unit_bytes) as usize,
            saved: level(segment.saved_bytes),
            taped: level(segment.taped_bytes),
            cost: segment.cost,
            saved_cost: segment.saved_cost,
        };
        let mut segments: Vec<_> = self.segments.iter().map(taken).collect();
        if !self.alike {
            let tables = Tables::new(segments, false, LEVELS);
            self.problem.spend(tables.work());
            return tables;
        }
        // The first is taken for one like the others, and so is the last, which may be smaller.
        let (count, inner) = (segments.len(), segments[1]);
        segments[0] = inner;
        let saved = (self.segments[count - 1].saved_bytes / self.unit_bytes) as usize;
        segments[count - 1] = Taken { saved, ..inner };
        let tables = Tables::new(segments, true, table_levels(count, inner.saved > 0));
        self.problem.spend(tables.work());
        tables
    }

    /// One sequence for each of several amounts of memory, from least to most; of each, those that differ.
    pub(crate) fn sequences(&self, base: &[Entry]) -> Vec<Vec<Entry>> {
        let mut sequences: Vec<Vec<Entry>> = Vec::new();
        if self.segments.len() < 3 {
            return sequences;
        }
        let tables = self.tables();
        let most = tables.levels();
        let count = most.min(40);
        for i in 0..=count {
            let level = i * most / count.max(1);
            let Some(steps) = tables.steps(level) else { continue };
            let Some(sequence) = self.emit(base, &steps) else { continue };
            if sequences.last() != Some(&sequence) {
                sequences.push(sequence);
            }
        }
        sequences
    }

    /// As [`sequences`](Self::sequences), but the cheapest only that `fits`, by bisection: more memory costs less.
    pub(crate) fn cheapest(&self, base: &[Entry], mut fits: impl FnMut(&[Entry]) -> bool) -> Option<Vec<Entry>> {
        if self.segments.len() < 3 {
            return None;
        }
        let tables = self.tables();
        let (mut low, mut high) = (0, tables.levels() + 1);
        let mut best = None;
        while low < high {
            let middle = low.midpoint(high);
            let sequence = tables.steps(middle).and_then(|steps| self.emit(base, &steps));
            match sequence {
                None => low = middle + 1,
                Some(sequence) if fits(&sequence) => {
                    best = Some(sequence);
                    low = middle + 1;
                }
                Some(_) => high = middle,
            }
        }
        best
    }

    /// The entries of these steps; none where they are too many to be of use.
    fn emit(&self, base: &[Entry], steps: &[Step]) -> Option<Vec<Entry>> {
        let most = most_entries(base);
        let mut writer = Writer::new(self, base);
        let first = steps.iter().position(|step| matches!(step, Step::Backward(_))).unwrap_or(steps.len());
        // What the first run passes is there where a step keeps it, and where backward begins.
        for step in &steps[..(first + 1).min(steps.len())] {
            let values = match *step {
                Step::Advance(s) => &self.segments[s].boundary,
                Step::Tape(s) => &self.segments[s].taped,
                Step::Backward(s) => &self.segments[s].saved,
            };
            values.iter().for_each(|&value| writer.available[value] = true);
        }
        let mut steps = steps[first..].iter().copied().peekable();
        let mut current = usize::MAX;
        for stage in self.last_forward + 1..self.problem.len() {
            let reads = self.problem.inputs(stage).iter().filter_map(|&v| self.reader_segment(v as usize)).max();
            if let Some(segment) = reads
                && segment < current
            {
                // All steps up to this segment's backward part.
                while let Some(step) = steps.next_if(|_| current != segment) {
                    match step {
                        Step::Advance(s) => writer.keep(stage, &self.segments[s].boundary),
                        Step::Tape(s) => writer.keep(stage, &self.segments[s].taped),
                        Step::Backward(s) => current = s,
                    }
                    if current <= segment {
                        break;
                    }
                }
                current = segment;
            }
            writer.use_at(stage);
            if writer.entries.len() > most {
                return None;
            }
        }
        writer.entries.sort_unstable();
        writer.entries.dedup();
        Some(writer.entries)
    }

    fn segment_of_value(&self, value: usize) -> Option<usize> {
        let producer = self.problem.values()[value].producer? as usize;
        self.segment_of.get(producer).copied()
    }

    /// The segment whose backward part reads a value: the one that it crosses into, or the one that makes it.
    fn reader_segment(&self, value: usize) -> Option<usize> {
        let made = self.segment_of_value(value)?;
        let crosses = self.segments.get(made + 1).is_some_and(|next| next.boundary.binary_search(&value).is_ok());
        Some(made + usize::from(crosses))
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Where a chain can be cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The operation before it.
    after: usize,
    /// Bytes that cross it.
    bytes: u64,
}

/// Where the bytes that cross are least.
fn cuts(problem: &Problem, last_forward: usize) -> Vec<Cut> {
    let mut change = vec![0i128; last_forward + 2];
    for (v, value) in problem.values().iter().enumerate() {
        let Some(producer) = value.producer.filter(|&producer| producer as usize <= last_forward) else { continue };
        let last = problem.readers(v).iter().rev().find(|&&reader| reader as usize <= last_forward);
        if let Some(&last) = last {
            change[producer as usize] += i128::from(value.bytes);
            change[last as usize] -= i128::from(value.bytes);
        }
    }
    let mut bytes = 0;
    let crossing: Vec<i128> = change[..=last_forward]
        .iter()
        .map(|change| {
            bytes += change;
            bytes
        })
        .collect();
    let lowest = |k: usize| {
        let before = k.checked_sub(1).map_or(i128::MAX, |before| crossing[before]);
        // Nothing crosses at the end, which is no reason to not cut before the last operation.
        let after = if k + 1 < last_forward { crossing[k + 1] } else { i128::MAX };
        crossing[k] > 0 && crossing[k] <= before && crossing[k] <= after
    };
    (0..last_forward).filter(|&k| lowest(k)).map(|after| Cut { after, bytes: crossing[after] as u64 }).collect()
}

/// For each boundary before the operations `starts`, the values that cross it, in order.
fn crossing(problem: &Problem, last_forward: usize, starts: &[usize]) -> Vec<Vec<usize>> {
    let mut crossing = vec![Vec::new(); starts.len()];
    for (v, value) in problem.values().iter().enumerate() {
        let Some(producer) = value.producer.map(|producer| producer as usize) else { continue };
        let last =
            problem.readers(v).iter().rev().map(|&reader| reader as usize).find(|&reader| reader <= last_forward);
        let Some(last) = last.filter(|_| producer <= last_forward) else { continue };
        let from = starts.partition_point(|&start| start <= producer);
        let to = starts.partition_point(|&start| start <= last);
        crossing[from..to.max(from)].iter_mut().for_each(|boundary| boundary.push(v));
    }
    crossing
}

/// Writes entries, with an account of which values of the forward part are there.
struct Writer<'a> {
    chain: &'a Chain<'a>,
    entries: Vec<Entry>,
    available: Vec<bool>,
}

impl<'a> Writer<'a> {
    fn new(chain: &'a Chain<'a>, base: &[Entry]) -> Self {
        let available = vec![false; chain.problem.values().len()];
        Writer { chain, entries: base.to_vec(), available }
    }

    fn is_there(&self, value: usize) -> bool {
        self.available[value] || self.chain.segment_of_value(value).is_none()
    }

    /// Has these values there from `stage` on.
    fn keep(&mut self, stage: usize, values: &[usize]) {
        let made = self.make(stage, values);
        // What was only passed on the way is gone.
        made.into_iter().for_each(|value| self.available[value] = false);
        values.iter().for_each(|&value| self.available[value] = true);
    }

    /// Makes these values and what they need; returns all values that were made and not there before.
    fn make(&mut self, stage: usize, values: &[usize]) -> Vec<usize> {
        let problem = self.chain.problem;
        let mut made = Vec::new();
        let mut stack: Vec<_> = values.to_vec();
        while let Some(value) = stack.pop() {
            let Some(producer) = problem.values()[value].producer else { continue };
            let producer = producer as usize;
            if self.is_there(value) || !problem.is_repeatable(producer, stage) {
                continue;
            }
            self.entries.push(Entry::run(stage, producer));
            for &output in problem.outputs(producer) {
                if !std::mem::replace(&mut self.available[output as usize], true) {
                    made.push(output as usize);
                }
            }
            stack.extend(problem.inputs(producer).iter().map(|&input| input as usize));
        }
        made
    }

    /// Makes what an operation of the backward part reads, and keeps it.
    fn use_at(&mut self, stage: usize) {
        let inputs: Vec<_> = self.chain.problem.inputs(stage).iter().map(|&input| input as usize).collect();
        self.make(stage, &inputs);
    }
}
