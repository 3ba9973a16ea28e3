//! All candidates of a request: numbers of micro-batches, and for each the forms of its graphs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::microbatch::{self, Mixing};
use super::storage::FEWER_SAMPLES;
use super::{Candidate, Form, Size};
use crate::error::{GraphError, PlanError};
use crate::plan::{Request, Source};

/// What a node takes to build the graph of a program and to order it, in units of work.
const NODE_WORK: u64 = 2_500;

/// What helps where one sample is too large.
const SMALLER: &str = "smaller layers or samples";

/// Which candidate: its number of micro-batches and its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) count: usize,
    pub(crate) form: Form,
}

/// The candidates of a request: its budget does not matter here.
pub(crate) struct Candidates<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) request: &'a Request,
    pub(crate) mixing: Option<Mixing>,
    /// Numbers of micro-batches to choose from, fewest first.
    pub(crate) counts: Vec<usize>,
    /// Candidates made so far; `None` where there are none.
    made: BTreeMap<Key, Option<Rc<Candidate<'a>>>>,
    /// The largest size of all made so far.
    pub(crate) size: Size,
    /// Work done to make them, in units of about a nanosecond.
    work: u64,
    /// Why a number of micro-batches is not possible at all: the largest such number.
    refused: Option<(usize, PlanError)>,
}

impl<'a> Candidates<'a> {
    pub(crate) fn new(source: &'a dyn Source, request: &'a Request) -> Result<Self, PlanError> {
        let batch = request.batch;
        if batch == 0 {
            return Err(PlanError::Request("a batch of 0 samples cannot be trained on: use at least 1".into()));
        }
        if batch > microbatch::MOST_SAMPLES {
            let most = microbatch::MOST_SAMPLES;
            return Err(PlanError::Request(format!("a batch of {batch} samples is too large: use at most {most}")));
        }
        let most = batch.min(microbatch::MOST);
        if let Some(count) = request.micro_batches
            && !(1..=most).contains(&count)
        {
            return Err(PlanError::Request(format!(
                "a batch of {batch} cannot be split into {count} micro-batches: use 1 to {most}"
            )));
        }
        let mixing = microbatch::mixing(source, batch).map_err(|error| match error {
            GraphError::TooLarge { .. } => PlanError::Request(format!("{error}: use {SMALLER}")),
            error => error.into(),
        })?;
        let counts = match (request.micro_batches, &mixing) {
            (Some(count), Some(Mixing { layer, advice })) if count > 1 => {
                let advice = advice.map_or_else(String::new, |advice| format!(", or {advice}"));
                return Err(PlanError::Request(format!(
                    "{layer}, so splitting the batch would change the result: use 1 micro-batch{advice}"
                )));
            }
            (Some(count), _) => vec![count],
            (None, Some(_)) => vec![1],
            (None, None) => {
                let all = microbatch::distinct_counts(batch);
                microbatch::spread(all.len()).into_iter().map(|position| all[position]).collect()
            }
        };
        let made = BTreeMap::new();
        Ok(Candidates { source, request, mixing, counts, made, size: Size::Small, work: 0, refused: None })
    }

    /// All positions in the numbers of micro-batches.
    pub(crate) fn positions(&self) -> RangeInclusive<usize> {
        0..=self.counts.len() - 1
    }

    /// The position of a candidate's number of micro-batches.
    pub(crate) fn position(&self, candidate: &Candidate<'_>) -> usize {
        self.counts.partition_point(|&count| count < candidate.micro_batches.len())
    }

    /// Why there is no plan at all, with advice that can be followed.
    pub(crate) fn refusal(&self) -> PlanError {
        let advice = microbatch::fewer_samples(self.request, self.mixing.as_ref()).unwrap_or(SMALLER);
        // Batch statistics keep a batch together that would fit in parts.
        let other = self.mixing.as_ref().and_then(|mixing| mixing.advice).filter(|_| self.request.batch > 1);
        let advice = other.map_or_else(|| advice.to_owned(), |other| format!("{advice}, or {other}"));
        match self.refused.clone() {
            Some((_, PlanError::Binding { value, size_bytes, limit_bytes, advice: given }))
                if given == FEWER_SAMPLES =>
            {
                PlanError::Binding { value, size_bytes, limit_bytes, advice }
            }
            Some((_, PlanError::Graph(error @ GraphError::TooLarge { .. }))) => {
                PlanError::Request(format!("{error}: use {advice}"))
            }
            Some((_, error)) => error,
            None => PlanError::Request("there is nothing to plan".into()),
        }
    }

    /// The candidate with so many micro-batches; none where a tensor would be too large, or a layer cannot take so few
    /// samples.
    pub(crate) fn get(&mut self, key: Key) -> Result<Option<Rc<Candidate<'a>>>, PlanError> {
        if let Some(known) = self.made.get(&key) {
            return Ok(known.clone());
        }
        let Key { count, form } = key;
        let micro_batches = microbatch::split(self.request.batch, count);
        let candidate = match Candidate::new(self.source, self.request, micro_batches, form) {
            Ok(candidate) => Some(Rc::new(candidate)),
            Err(error @ (PlanError::Binding { .. } | PlanError::Graph(_))) => {
                if self.refused.as_ref().is_none_or(|&(largest, _)| count >= largest) {
                    self.refused = Some((count, error));
                }
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(candidate) = &candidate {
            self.work += NODE_WORK * candidate.nodes() as u64;
            self.size = candidate.size().max(self.size);
        }
        self.made.insert(key, candidate.clone());
        Ok(candidate)
    }

    /// Work done so far to make candidates.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Drops large candidates that nothing uses, but those with such a number of micro-batches: few of them are wanted again, and
    /// together they take much memory.
    pub(crate) fn drop_large(&mut self, is_kept: impl Fn(usize) -> bool) {
        self.made.retain(|&Key { count, .. }, candidate| {
            let is_small = |candidate: &Rc<Candidate<'_>>| candidate.size() < Size::Large;
            is_kept(count) || candidate.as_ref().is_none_or(|made| is_small(made) || Rc::strong_count(made) > 1)
        });
    }

    /// The forms of graphs to choose from, with elementwise nodes fused or not.
    pub(crate) fn forms(&self, fused: bool) -> Vec<Form> {
        self.request.levers.saved_forms().into_iter().map(|saved| Form { saved, fused }).collect()
    }

    /// Whether to fuse nodes. Fused nodes take less time, but all that they read is in memory at once: where memory is so
    /// short that values come and go, they may be better apart.
    pub(crate) fn fusions(&self) -> &'static [bool] {
        if self.request.levers.fusion { &[true, false] } else { &[false] }
    }
}
