//! Minimum cuts (Dinic's algorithm).

/// A network from node 0, the source, to node 1, the sink.
#[derive(Clone, Debug)]
pub(super) struct Network {
    /// For each node, its first edge; edges of a node are linked.
    first: Vec<u32>,
    edges: Vec<Edge>,
    level: Vec<u32>,
    next: Vec<u32>,
    queue: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    link: u32,
    capacity: u64,
}

const NONE: u32 = u32::MAX;
/// The source of every network.
pub(super) const SOURCE: u32 = 0;
/// The sink of every network.
pub(super) const SINK: u32 = 1;
/// More than any cut.
pub(super) const INFINITE: u64 = u64::MAX / 4;

impl Network {
    /// Source and sink alone.
    pub(super) fn new() -> Self {
        Network { first: vec![NONE; 2], edges: Vec::new(), level: Vec::new(), next: Vec::new(), queue: Vec::new() }
    }

    /// Number of edges, both ways.
    pub(super) fn len(&self) -> usize {
        self.edges.len()
    }

    /// A new node.
    pub(super) fn node(&mut self) -> u32 {
        self.first.push(NONE);
        self.first.len() as u32 - 1
    }

    /// A new edge; returns its number.
    pub(super) fn edge(&mut self, from: u32, to: u32, capacity: u64) -> usize {
        let number = self.edges.len();
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            let link = std::mem::replace(&mut self.first[from as usize], self.edges.len() as u32);
            self.edges.push(Edge { to, link, capacity });
        }
        number
    }

    /// Gives an edge another capacity and takes all flow off it.
    pub(super) fn set_capacity(&mut self, edge: usize, capacity: u64) {
        self.edges[edge].capacity = capacity;
        self.edges[edge + 1].capacity = 0;
    }

    /// The least capacity that parts the sink from the source.
    pub(super) fn minimum_cut(&mut self) -> u64 {
        let mut flow = 0;
        while self.find_levels() {
            self.next.clone_from(&self.first);
            loop {
                let pushed = self.push();
                if pushed == 0 {
                    break;
                }
                // At prices beyond any cost, several edges without a limit are cut: a bound of less is one, too.
                flow = u64::saturating_add(flow, pushed);
            }
        }
        flow
    }

    /// Whether a node is on the source's side of the cut that was found last.
    pub(super) fn is_on_source_side(&self, node: u32) -> bool {
        self.level[node as usize] != NONE
    }

    fn find_levels(&mut self) -> bool {
        self.level.clear();
        self.level.resize(self.first.len(), NONE);
        self.level[SOURCE as usize] = 0;
        self.queue.clear();
        self.queue.push(SOURCE);
        let mut head = 0;
        while head < self.queue.len() {
            let node = self.queue[head];
            head += 1;
            let mut edge = self.first[node as usize];
            while edge != NONE {
                let Edge { to, link, capacity } = self.edges[edge as usize];
                if capacity > 0 && self.level[to as usize] == NONE {
                    self.level[to as usize] = self.level[node as usize] + 1;
                    self.queue.push(to);
                }
                edge = link;
            }
        }
        self.level[SINK as usize] != NONE
    }

    /// Pushes flow along one path of rising levels, without recursion: paths can be as long as the graph.
    fn push(&mut self) -> u64 {
        let mut path: Vec<u32> = Vec::new();
        let mut node = SOURCE;
        loop {
            if node == SINK {
                let least = path.iter().map(|&edge| self.edges[edge as usize].capacity).min().unwrap_or(0);
                for &edge in &path {
                    self.edges[edge as usize].capacity -= least;
                    self.edges[edge as usize ^ 1].capacity += least;
                }
                return least;
            }
            let edge = self.next[node as usize];
            if edge == NONE {
                // A dead end: go back and on to the next edge.
                let Some(back) = path.pop() else { return 0 };
                node = self.edges[back as usize ^ 1].to;
                self.next[node as usize] = self.edges[back as usize].link;
                continue;
            }
            let Edge { to, link, capacity } = self.edges[edge as usize];
            if capacity > 0 && self.level[to as usize] == self.level[node as usize] + 1 {
                path.push(edge);
                node = to;
            } else {
                self.next[node as usize] = link;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_cut_is_found() {
        let mut network = Network::new();
        let [a, b, c] = [network.node(), network.node(), network.node()];
        network.edge(SOURCE, a, 10);
        network.edge(SOURCE, b, 5);
        let weak = network.edge(a, c, 3);
        network.edge(a, b, 4);
        network.edge(b, c, 20);
        network.edge(c, SINK, 11);
        assert_eq!(network.minimum_cut(), 11);
        assert!(network.is_on_source_side(a) && network.is_on_source_side(c));
        for edge in [0, 2, 4, 6, 8, 10] {
            let capacity = [10, 5, 1, 4, 20, 11][edge / 2];
            network.set_capacity(edge, capacity);
        }
        assert_eq!(weak, 4);
        assert_eq!(network.minimum_cut(), 10);
        assert!(!network.is_on_source_side(c));
    }
}
