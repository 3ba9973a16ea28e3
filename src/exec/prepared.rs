//! A program of a plan with every launch bound to its buffers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::gpu::{Arena, Tensor, buffer, invalid};
use super::launch::{Launch, Location, Storage, access};
use crate::device::{Device, in_parallel};
use crate::error::DeviceError;
use crate::graph::{Graph, Role};
use crate::ops::stored::dispatches;
use crate::ops::{self, Cost, Dispatch, Op, Slot};
use crate::plan::{Allocation, Command, Program};
use crate::shader::{Access, Kernel, Variant};
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Work of one submission: an operating system resets a GPU that is busy for seconds with one. Far more than a step of
/// a small model, and about a second on a slow integrated GPU.
const MAX_SUBMISSION: Cost = Cost { flops: 200_000_000_000, bytes_moved: 20_000_000_000 };

/// A program with every launch bound.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) graph: Graph,
    pub(super) steps: Vec<Step>,
    /// The launches between two moves of data, cut where that is much work for one submission. The last part ends where the
    /// program does; the step after any other is a move, or the first of the next part.
    pub(super) parts: Vec<Range<usize>>,
    pub(super) inputs: BTreeMap<String, Tensor>,
    pub(super) outputs: Vec<Tensor>,
}

/// One command of the plan that takes time.
#[derive(Debug)]
pub(super) enum Step {
    Dispatch {
        node: NodeId,
        launches: Vec<Launch>,
        cost: Cost,
        /// Where the node's outputs are.
        outputs: Vec<Tensor>,
    },
    Offload {
        value: ValueId,
        from: Tensor,
        to: Allocation,
    },
    Prefetch {
        from: Allocation,
        to: Tensor,
    },
}

/// A command, with what the commands before it decide.
enum Placed<'a> {
    Dispatch { command: &'a Command, inputs: Vec<Allocation> },
    Step(Step),
}

/// A program whose values have their places, before its kernels are compiled.
pub(super) struct Draft<'a> {
    graph: &'a Graph,
    commands: Vec<Placed<'a>>,
    inputs: BTreeMap<String, Tensor>,
    outputs: Vec<Tensor>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(arenas: &[Arena], program: &'a Program, graph: &'a Graph) -> Result<Self, DeviceError> {
        if program.graph_hash != graph.hash() {
            return Err(invalid("it was made for another graph"));
        }
        // Where every value is at this point of the program.
        let mut places = program.places.clone();
        places.values().try_for_each(|&place| check_place(place, arenas))?;
        let size_bytes = |id: ValueId| graph.value(id).desc.size_bytes();
        let tensor = |places: &BTreeMap<ValueId, Allocation>, id: ValueId| {
            let place = places.get(&graph.storage_root(id)).copied();
            let place = place.ok_or_else(|| invalid(format!("`{}` has no place", graph.value(id).name)))?;
            Ok::<_, DeviceError>(Tensor { place, size_bytes: size_bytes(id) })
        };
        let with_role = |role: Role| graph.value_ids().filter(move |&id| graph.value(id).role == role);
        let inputs = with_role(Role::Input)
            .map(|id| Ok((graph.value(id).name.clone(), tensor(&places, id)?)))
            .collect::<Result<_, DeviceError>>()?;
        let mut commands = Vec::new();
        for command in &program.commands {
            match command {
                Command::Dispatch { node, outputs, workspaces, .. } => {
                    outputs.iter().chain(workspaces).try_for_each(|&place| check_place(place, arenas))?;
                    let inputs = input_places(graph, *node, &places)?;
                    commands.push(Placed::Dispatch { command, inputs });
                    places.extend(graph.node(*node).outputs.iter().copied().zip(outputs.iter().copied()));
                }
                // Memory is free by its absence from later launches.
                Command::Free { .. } => {}
                Command::Offload { value, to } => {
                    check_place(*to, arenas)?;
                    commands.push(Placed::Step(Step::Offload {
                        value: *value,
                        from: tensor(&places, *value)?,
                        to: *to,
                    }));
                }
                Command::Prefetch { value, from, to } => {
                    check_place(*from, arenas)?;
                    check_place(*to, arenas)?;
                    places.insert(*value, *to);
                    commands.push(Placed::Step(Step::Prefetch { from: *from, to: tensor(&places, *value)? }));
                }
            }
        }
        let outputs = with_role(Role::Output).map(|id| tensor(&places, id)).collect::<Result<_, _>>()?;
        Ok(Draft { graph, commands, inputs, outputs })
    }

    /// The kernels that it launches, each in each variant.
    pub(super) fn kernels(
        &self,
        device: &Device,
        arenas: &[Arena],
    ) -> Result<BTreeSet<(Kernel, Variant)>, DeviceError> {
        let mut kernels = BTreeSet::new();
        for placed in &self.commands {
            if let Placed::Dispatch { command, inputs } = placed {
                let node = Node::new(arenas, self.graph, command, inputs)?;
                kernels.extend(node.dispatches(device).into_iter().map(|(dispatch, access)| {
                    (dispatch.kernel, node.storage(device).variant(&dispatch, access, node.in_place))
                }));
            }
        }
        Ok(kernels)
    }

    /// Binds its launches; kernels that are not compiled are.
    pub(super) fn bind(self, device: &Device, arenas: &[Arena]) -> Result<Prepared, DeviceError> {
        let Draft { graph, commands, inputs, outputs } = self;
        let steps = in_parallel(commands, |placed| match placed {
            Placed::Dispatch { command, inputs } => Node::new(arenas, graph, command, &inputs)?.bind(device),
            Placed::Step(step) => Ok(step),
        })?;
        Ok(Prepared { graph: graph.clone(), parts: parts(&steps), steps, inputs, outputs })
    }
}

impl Prepared {
    /// Its launches in their order.
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.steps.iter().flat_map(|step| match step {
            Step::Dispatch { launches, .. } => &launches[..],
            Step::Offload { .. } | Step::Prefetch { .. } => &[],
        })
    }
}

fn parts(steps: &[Step]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut first, mut sum) = (0, Cost::default());
    for (i, step) in steps.iter().enumerate() {
        let Step::Dispatch { cost, .. } = step else {
            parts.push(first..i);
            (first, sum) = (i + 1, Cost::default());
            continue;
        };
        sum.flops += cost.flops;
        sum.bytes_moved += cost.bytes_moved;
        let full = sum.flops > MAX_SUBMISSION.flops || sum.bytes_moved > MAX_SUBMISSION.bytes_moved;
        if full && i > first {
            parts.push(first..i);
            (first, sum) = (i, *cost);
        }
    }
    parts.push(first..steps.len());
    parts
}

fn check_place(place: Allocation, arenas: &[Arena]) -> Result<(), DeviceError> {
    let end = place.offset_bytes.saturating_add(place.size_bytes);
    match arenas.get(place.arena as usize) {
        Some(arena) if end <= arena.size_bytes() => Ok(()),
        _ => Err(invalid(format!("{place:?} is outside the arenas"))),
    }
}

/// Where the inputs of a node lie, with values where `places` says.
fn input_places(
    graph: &Graph,
    node: NodeId,
    places: &BTreeMap<ValueId, Allocation>,
) -> Result<Vec<Allocation>, DeviceError> {
    let node = graph.node(node);
    let place_of = |&value: &ValueId| {
        let place = places.get(&graph.storage_root(value)).copied();
        place.ok_or_else(|| invalid(format!("`{}`, which {} uses, has no place", graph.value(value).name, node.name)))
    };
    node.inputs.iter().map(place_of).collect()
}

/// The node of a `Dispatch`, with where its data lies.
struct Node<'a> {
    id: NodeId,
    op: &'a dyn Op,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    arenas: &'a [Arena],
    input_places: &'a [Allocation],
    output_places: &'a [Allocation],
    workspaces: &'a [Allocation],
    in_place: Option<(usize, usize)>,
}

impl<'a> Node<'a> {
    fn new(
        arenas: &'a [Arena],
        graph: &'a Graph,
        command: &'a Command,
        input_places: &'a [Allocation],
    ) -> Result<Self, DeviceError> {
        let Command::Dispatch { node: id, outputs: output_places, workspaces, in_place } = command else {
            return Err(invalid("it dispatches what is not a node"));
        };
        let node = graph.node(*id);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
        let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
        let counts = (output_places.len(), workspaces.len());
        if counts != (outputs.len(), ops::workspaces(&*node.op, &inputs, &outputs, None).len()) {
            return Err(invalid(format!("{} has another number of outputs or workspaces", node.name)));
        }
        let bound = input_places.iter().chain(output_places).chain(workspaces);
        bound.clone().try_for_each(|&place| buffer(arenas, place).map(drop))?;
        let in_place = in_place.map(|input| (input, 0));
        let op = node.op.as_ref();
        Ok(Node { id: *id, op, inputs, outputs, arenas, input_places, output_places, workspaces, in_place })
    }

    fn storage(&self, device: &Device) -> Storage<'_> {
        Storage::new(device, &self.inputs, &self.outputs)
    }

    fn locate(&self, slot: Slot) -> Location<'a> {
        let place = match slot {
            Slot::Input(i) => self.input_places[i],
            Slot::Output(i) => self.output_places[i],
            Slot::Workspace(i) => self.workspaces[i],
        };
        let buffer = buffer(self.arenas, place).expect("bug: a place was not looked at");
        Location { buffer, offset_bytes: place.offset_bytes, size_bytes: place.size_bytes }
    }

    /// Its dispatches, and how the inputs of each are bound.
    fn dispatches(&self, device: &Device) -> Vec<(Dispatch, Access)> {
        let dispatches = dispatches(self.op, &self.inputs, &self.outputs, &device.target());
        let with_access = dispatches.into_iter().map(|dispatch| {
            let access = access(self.op, &dispatch, self.in_place, &|slot| self.locate(slot));
            (dispatch, access)
        });
        with_access.collect()
    }

    fn bind(&self, device: &Device) -> Result<Step, DeviceError> {
        let launches = self.dispatches(device).into_iter().map(|(dispatch, access)| {
            Launch::new(device, dispatch, self.storage(device), access, self.in_place, &|slot| self.locate(slot))
        });
        let launches = launches.collect::<Result<_, _>>()?;
        let tensor = |(&place, desc): (&Allocation, &TensorDesc)| Tensor { place, size_bytes: desc.size_bytes() };
        let outputs = self.output_places.iter().zip(&self.outputs).map(tensor).collect();
        Ok(Step::Dispatch { node: self.id, launches, cost: self.op.cost(&self.inputs, &self.outputs), outputs })
    }
}
