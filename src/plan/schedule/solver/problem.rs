//! What is to be scheduled: operations in their order, the values between them, and what it costs to have a value again.

use std::cell::Cell;

/// A problem of scheduling. Operations stand in the order in which each first runs, which schedules keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    operations: Vec<Operation>,
    values: Vec<Value>,
    /// Inputs and outputs of all operations, one after the other.
    operands: Vec<u32>,
    /// The operations that read each value, one value after the other, and where each value's begin.
    readers: Vec<u32>,
    reader_ends: Vec<u32>,
    /// Likewise the operations that change it.
    changers: Vec<u32>,
    changer_ends: Vec<u32>,
    boundary: usize,
    residents: Vec<Resident>,
    /// Work done on it so far, in units of about a nanosecond. Searches are limited by counts, not by time, so that the same
    /// problem has the same solution everywhere.
    work: Cell<u64>,
}

/// Memory that is taken from the first operation to the last unless it is moved to the host tier. Only the bound looks
/// at it: what a schedule does with it is decided before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Its bytes.
    pub(crate) bytes: u64,
    /// What having it in the host tier costs; none where it cannot be there.
    pub(crate) cost: Option<u64>,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    first_input: u32,
    first_output: u32,
    end: u32,
    workspace_bytes: u64,
    cost: u64,
    repeatable_before: u32,
    in_place: Option<(u32, u32)>,
}

/// What an operation is, when a problem is put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationSpec {
    /// Values that it reads, each once.
    pub(crate) inputs: Vec<usize>,
    /// Values that it makes. Each value has one maker.
    pub(crate) outputs: Vec<usize>,
    /// Bytes that it needs while it runs.
    pub(crate) workspace_bytes: u64,
    /// What one run costs.
    pub(crate) cost: u64,
    /// It may run again before the operations up to this position, which excludes it: an input changes there, or it may
    /// run only once (then its own position).
    pub(crate) repeatable_before: usize,
    /// Inputs whose memory output 0 reuses where they end here.
    pub(crate) in_place: [Option<usize>; 2],
    /// Inputs that it changes. Of values that can move, only hosted ones.
    pub(crate) changes: Vec<usize>,
}

/// A value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Value {
    /// Its bytes.
    pub(crate) bytes: u64,
    /// The operation that makes it; none for what is there before the first operation.
    pub(crate) producer: Option<u32>,
    /// Needed after the last operation.
    pub(crate) to_end: bool,
    /// Whether it can leave for the host tier.
    pub(crate) transfer: Option<Transfer>,
}

/// What moving a value costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// To the host.
    pub(crate) offload_cost: u64,
    /// From the host.
    pub(crate) prefetch_cost: u64,
    /// It lives in the host tier: it is there before the first operation unless one makes it, and back there after the
    /// last.
    pub(crate) hosted: bool,
}

impl Problem {
    /// A problem of these operations, in order, on these values. `boundary` is the last operation of the forward
    /// part: where a chain is looked for.
    pub(crate) fn new(operations: &[OperationSpec], values: Vec<Value>, boundary: usize) -> Problem {
        let mut problem = Problem { values, boundary, ..Problem::default() };
        let mut readers = vec![Vec::new(); problem.values.len()];
        let mut changers = readers.clone();
        for (number, spec) in operations.iter().enumerate() {
            let first_input = problem.operands.len() as u32;
            problem.operands.extend(spec.inputs.iter().map(|&input| input as u32));
            let first_output = problem.operands.len() as u32;
            problem.operands.extend(spec.outputs.iter().map(|&output| output as u32));
            for &output in &spec.outputs {
                problem.values[output].producer = Some(number as u32);
            }
            spec.inputs.iter().for_each(|&input| readers[input].push(number as u32));
            spec.changes.iter().for_each(|&input| changers[input].push(number as u32));
            let candidate = |slot: usize| spec.in_place[slot].map_or(u32::MAX, |input| input as u32);
            problem.operations.push(Operation {
                first_input,
                first_output,
                end: problem.operands.len() as u32,
                workspace_bytes: spec.workspace_bytes,
                cost: spec.cost,
                repeatable_before: spec.repeatable_before as u32,
                in_place: spec.in_place[0].map(|_| (candidate(0), candidate(1))),
            });
        }
        (problem.readers, problem.reader_ends) = concatenated(readers);
        (problem.changers, problem.changer_ends) = concatenated(changers);
        problem
    }

    /// Takes account of work.
    pub(super) fn spend(&self, units: u64) {
        self.work.set(self.work.get().saturating_add(units));
    }

    /// Work done on it so far, in units of about a nanosecond.
    pub(crate) fn work(&self) -> u64 {
        self.work.get()
    }

    /// Number of operations.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// The same with resident memory.
    pub(crate) fn with_residents(mut self, residents: Vec<Resident>) -> Problem {
        self.residents = residents;
        self
    }

    pub(super) fn residents(&self) -> &[Resident] {
        &self.residents
    }

    /// The last operation of the forward part.
    pub(super) fn boundary(&self) -> usize {
        self.boundary
    }

    /// All values.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    pub(super) fn inputs(&self, operation: usize) -> &[u32] {
        let operation = &self.operations[operation];
        &self.operands[operation.first_input as usize..operation.first_output as usize]
    }

    pub(super) fn outputs(&self, operation: usize) -> &[u32] {
        let operation = &self.operations[operation];
        &self.operands[operation.first_output as usize..operation.end as usize]
    }

    /// Operations that read a value, in order.
    pub(super) fn readers(&self, value: usize) -> &[u32] {
        &self.readers[self.reader_ends[value] as usize..self.reader_ends[value + 1] as usize]
    }

    /// Operations that change a value, in order.
    pub(super) fn changers(&self, value: usize) -> &[u32] {
        &self.changers[self.changer_ends[value] as usize..self.changer_ends[value + 1] as usize]
    }

    /// How often a value was changed before the operation at `stage`.
    pub(super) fn version(&self, value: usize, stage: usize) -> usize {
        self.changers(value).partition_point(|&changer| (changer as usize) < stage)
    }

    /// The number of a version among those of all values.
    pub(super) fn version_number(&self, value: usize, version: usize) -> usize {
        self.changer_ends[value] as usize + value + version
    }

    /// What a fetch of this version of a value costs for the copy to the host, if it is the first one.
    pub(super) fn offload_cost(&self, value: usize, version: usize) -> u64 {
        let described = &self.values[value];
        let Some(transfer) = described.transfer else { unreachable!("bug: the value cannot move") };
        // A hosted value is there before it is changed, and its last version is copied in any case.
        let there = transfer.hosted && version == 0 && described.producer.is_none();
        let copied = transfer.hosted && version == self.changers(value).len();
        if there || copied { 0 } else { transfer.offload_cost }
    }

    /// What the copies of hosted values to the host cost that every schedule makes.
    pub(super) fn return_cost(&self) -> u64 {
        let returns = |(v, value): (usize, &Value)| {
            let made = value.producer.is_some() || !self.changers(v).is_empty();
            value.transfer.filter(|transfer| transfer.hosted && made).map(|transfer| transfer.offload_cost)
        };
        self.values.iter().enumerate().filter_map(returns).sum()
    }

    /// Bytes of all that is there before the first operation and not in the host tier: inputs are uploaded together.
    pub(super) fn upload_bytes(&self) -> u64 {
        let hosted = |value: &Value| value.transfer.is_some_and(|transfer| transfer.hosted);
        let inputs = self.values.iter().filter(|value| value.producer.is_none() && !hosted(value));
        inputs.map(|value| value.bytes).sum()
    }

    pub(super) fn workspace_bytes(&self, operation: usize) -> u64 {
        self.operations[operation].workspace_bytes
    }

    pub(super) fn cost(&self, operation: usize) -> u64 {
        self.operations[operation].cost
    }

    /// Whether an operation may run again before the operation at `stage`.
    pub(super) fn is_repeatable(&self, operation: usize, stage: usize) -> bool {
        operation < stage && stage < self.operations[operation].repeatable_before as usize
    }

    /// The inputs whose memory output 0 can reuse.
    pub(super) fn in_place(&self, operation: usize) -> Option<(u32, u32)> {
        self.operations[operation].in_place
    }

    /// Bytes of an operation's operands and workspaces: no schedule has less in memory while it runs.
    pub(super) fn operand_bytes(&self, operation: usize) -> u64 {
        let bytes = |value: u32| if value == u32::MAX { 0 } else { self.values[value as usize].bytes };
        let operands = self.inputs(operation).iter().chain(self.outputs(operation));
        let shared = self
            .in_place(operation)
            .map_or(0, |(a, b)| bytes(a).max(bytes(b)).min(self.values[self.outputs(operation)[0] as usize].bytes));
        operands.map(|&value| bytes(value)).sum::<u64>() + self.workspace_bytes(operation) - shared
    }

    /// The most of that: no schedule has a lower peak.
    pub(crate) fn floor_bytes(&self) -> u64 {
        (0..self.len()).map(|operation| self.operand_bytes(operation)).max().unwrap_or(0)
    }

    /// What all operations cost once.
    pub(crate) fn plain_cost(&self) -> u64 {
        self.operations.iter().map(|operation| operation.cost).sum()
    }
}

/// Lists as one, and where each begins and the last ends.
fn concatenated(lists: Vec<Vec<u32>>) -> (Vec<u32>, Vec<u32>) {
    let (mut concatenated, mut ends) = (Vec::new(), vec![0]);
    for list in lists {
        concatenated.extend(list);
        ends.push(concatenated.len() as u32);
    }
    (concatenated, ends)
}
