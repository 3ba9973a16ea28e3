//! The state of memory at one moment, as a minimum cut: what each byte is worth, and what cannot be avoided.
//!
//! At the first run of one operation, every value that later operations need is in memory, or is recomputed later from
//! values of which the same holds, or comes back from the host tier. With a price λ for each byte that is in memory, the
//! cheapest way is a minimum cut. For any λ, that cost less λ times the bytes of the budget is a lower bound on what a
//! schedule spends beyond running each operation once (Lagrangian duality; the relaxation forgets all other moments).

use super::flow::{INFINITE, Network, SINK, SOURCE};
use super::problem::Problem;

/// Costs are multiplied by this, so that prices of single bytes are not rounded away.
const SCALE_BITS: u32 = 60;
/// By what prices grow until memory is empty enough, and how often at most.
const GROWTH: f64 = 4.0;
const GROWTHS: usize = 30;
/// Lines that are looked at then, at most.
const NARROWINGS: usize = 24;
/// What an edge of a network takes in a minimum cut, in units of work.
const EDGE_WORK: u64 = 12;

/// What becomes of a value at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing needs it later, or it is an operand of the moment's operation.
    Free,
    /// It stays in memory.
    Kept,
    /// It is recomputed later.
    Recomputed,
    /// It leaves for the host tier.
    Offloaded,
}

/// The moment of one operation's first run, for which costs are asked at many prices.
pub(crate) struct Moment<'a> {
    problem: &'a Problem,
    network: Network,
    /// Edges with their capacities: what is fixed, and bytes with the most that they may cost.
    fixed: Vec<(usize, u64)>,
    priced: Vec<(usize, u64, u64)>,
    /// For each needed value: its node, and the node of the operation that makes it.
    nodes: Vec<(u32, u32, u32)>,
    /// Bytes of the operation and its operands.
    pub(crate) operand_bytes: u64,
    scale: f64,
}

impl<'a> Moment<'a> {
    /// The moment of the first run of `stage`, looking ahead to the first run of `end` at most: what only later
    /// operations need does not count. Costs of moments with windows that follow each other add up.
    pub(crate) fn new(problem: &'a Problem, stage: usize, end: usize) -> Self {
        let values = problem.values();
        let total = problem.plain_cost().max(1) as f64;
        let scale = (f64::from(SCALE_BITS - 12).exp2() / total).min(1e6);
        let scaled = |cost: u64| (cost as f64 * scale) as u64;
        let mut operand = vec![false; values.len()];
        for &value in problem.inputs(stage).iter().chain(problem.outputs(stage)) {
            operand[value as usize] = true;
        }

        let mut network = Network::new();
        let (mut fixed, mut priced, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        // Nodes of values, made when a value is first needed; of operations likewise.
        let mut value_node = vec![u32::MAX; values.len()];
        let mut operation_node = vec![u32::MAX; problem.len()];
        let mut needed: Vec<usize> = Vec::new();
        let is_made = |v: usize| values[v].producer.is_none_or(|producer| producer as usize <= stage);
        for (v, node) in value_node.iter_mut().enumerate() {
            let later = problem.readers(v).iter().any(|&reader| (stage + 1..=end).contains(&(reader as usize)));
            let to_end = values[v].to_end && end == problem.len();
            if is_made(v) && !operand[v] && (later || to_end) {
                *node = network.node();
                fixed.push((network.edge(SOURCE, *node, INFINITE), INFINITE));
                needed.push(v);
            }
        }
        while let Some(v) = needed.pop() {
            let node = value_node[v];
            let described = values[v];
            // The copy to the host is made once for all windows: the last one counts it.
            let transfer = described.transfer.map_or(u64::MAX, |transfer| {
                let copied = transfer.hosted || end < problem.len();
                transfer.prefetch_cost + if copied { 0 } else { transfer.offload_cost }
            });
            let most = if transfer == u64::MAX { INFINITE } else { scaled(transfer) };
            let again = described.producer.filter(|&o| problem.is_repeatable(o as usize, stage + 1));
            let Some(operation) = again else {
                priced.push((network.edge(node, SINK, 0), described.bytes, most));
                nodes.push((v as u32, node, SINK));
                continue;
            };
            let known = operation_node[operation as usize] != u32::MAX;
            if !known {
                let made = network.node();
                operation_node[operation as usize] = made;
                let cost = scaled(problem.cost(operation as usize));
                fixed.push((network.edge(made, SINK, cost), cost));
                for &input in problem.inputs(operation as usize) {
                    let input = input as usize;
                    if operand[input] {
                        continue;
                    }
                    if value_node[input] == u32::MAX {
                        value_node[input] = network.node();
                        needed.push(input);
                    }
                    fixed.push((network.edge(made, value_node[input], INFINITE), INFINITE));
                }
            }
            let made = operation_node[operation as usize];
            priced.push((network.edge(node, made, 0), described.bytes, most));
            nodes.push((v as u32, node, made));
        }
        Moment { problem, network, fixed, priced, nodes, operand_bytes: problem.operand_bytes(stage), scale }
    }

    /// The least cost beyond running everything once, where a byte in memory costs `price`, and the bytes that are then
    /// in memory besides the operands.
    pub(crate) fn least_cost(&mut self, price: f64) -> (f64, u64) {
        for &(edge, capacity) in &self.fixed {
            self.network.set_capacity(edge, capacity);
        }
        for &(edge, bytes, most) in &self.priced {
            let capacity = (price * bytes as f64 * self.scale) as u64;
            self.network.set_capacity(edge, capacity.min(most));
        }
        self.problem.spend(EDGE_WORK * self.network.len() as u64);
        let cost = self.network.minimum_cut() as f64 / self.scale;
        let kept = (0..self.nodes.len()).filter(|&at| self.fate(at, price) == Fate::Kept);
        let kept: u64 = kept.map(|at| self.priced[at].1).sum();
        // What is resident is in memory at its price, or in the host tier at its cost.
        let mut resident = (0.0, 0);
        for memory in self.problem.residents() {
            let priced = price * memory.bytes as f64;
            match memory.cost {
                Some(cost) if (cost as f64) < priced => resident.0 += cost as f64,
                _ => resident = (resident.0 + priced, resident.1 + memory.bytes),
            }
        }
        (cost + resident.0, kept + resident.1)
    }

    fn fate(&self, at: usize, price: f64) -> Fate {
        let (_, node, made) = self.nodes[at];
        if !self.network.is_on_source_side(node) {
            return Fate::Free;
        }
        if made != SINK && self.network.is_on_source_side(made) {
            return Fate::Recomputed;
        }
        let (_, bytes, most) = self.priced[at];
        let moves = most < INFINITE && price * bytes as f64 * self.scale > most as f64;
        if moves { Fate::Offloaded } else { Fate::Kept }
    }

    /// What becomes of each value in the cut that was found last.
    pub(crate) fn fates(&self, price: f64) -> Vec<Fate> {
        let mut fates = vec![Fate::Free; self.problem.values().len()];
        for (at, &(v, ..)) in self.nodes.iter().enumerate() {
            fates[v as usize] = self.fate(at, price);
        }
        fates
    }

    /// The highest lower bound over all prices on what must be spent beyond running everything once, and the price.
    /// Infinite where the operands alone are above the budget.
    ///
    /// The bound is concave in the price and consists of lines, one for each cut. Two cuts that keep too much and little
    /// enough give two lines; the price at which these meet is looked at next, until no other line lies below it
    /// (Newton's method as in Dinkelbach, "On nonlinear fractional programming", 1967).
    pub(crate) fn bound(&mut self, budget_bytes: u64) -> (f64, f64) {
        let Some(headroom) = budget_bytes.checked_sub(self.operand_bytes) else {
            return (f64::INFINITY, f64::INFINITY);
        };
        let mut best = (0.0, 0.0);
        let mut look = |price: f64, moment: &mut Self| {
            let (cost, kept) = moment.least_cost(price);
            let value = cost - price * headroom as f64;
            if value > best.0 {
                best = (value, price);
            }
            Line { price, value, slope: kept as f64 - headroom as f64 }
        };
        let mut low = look(0.0, self);
        if low.slope <= 0.0 {
            return best;
        }
        let total = self.problem.plain_cost().max(1) as f64;
        let bytes: u64 = self.priced.iter().map(|&(_, bytes, _)| bytes).sum();
        // Prices that grow until one empties memory enough.
        let mut price = total / bytes.max(1) as f64 / 64.0;
        let mut tries = 0;
        let mut high = loop {
            let line = look(price, self);
            if line.slope <= 0.0 {
                break line;
            }
            low = line;
            price *= GROWTH;
            tries += 1;
            if tries > GROWTHS {
                // Whatever a byte costs, more than the headroom is kept: nothing else can be done with it.
                return (f64::INFINITY, price);
            }
        };
        for _ in 0..NARROWINGS {
            let (price, value) = low.meets(high);
            if !(low.price < price && price < high.price) {
                break;
            }
            let line = look(price, self);
            // No line is below: rounding aside, this is the top.
            if line.value >= value - value.abs() * 1e-9 {
                break;
            }
            if line.slope > 0.0 {
                low = line;
            } else {
                high = line;
            }
        }
        best
    }
}

/// What a cut is worth at prices around the one at which it was found.
#[derive(Clone, Copy, Debug)]
struct Line {
    price: f64,
    value: f64,
    slope: f64,
}

impl Line {
    /// The price at which two lines meet, and the value there.
    fn meets(self, other: Line) -> (f64, f64) {
        let at_zero = |line: Line| line.value - line.slope * line.price;
        let price = (at_zero(other) - at_zero(self)) / (self.slope - other.slope);
        (price, self.value + self.slope * (price - self.price))
    }
}
