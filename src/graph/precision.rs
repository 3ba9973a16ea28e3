//! Which values are stored in 16 bits. A pass over the complete graph gives them their types; ops do not know of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Graph, Node, Phase, Role};
use crate::error::OpError;
use crate::ops::shape::copy::Copy;
use crate::ops::{Builder, Op};
use crate::tensor::{DType, Half, ValueId};

impl Graph {
    /// Stores activations, and the gradients of activations, in the format that `half` names for the layer that makes them.
    ///
    /// These stay f32: values that outlive a run or come from outside it, `keep`, what ops [say](crate::ops::Op::full_precision)
    /// needs it, and gradients of parameters: what updates and accumulators read.
    pub fn store_halves(&mut self, keep: &[ValueId], half: &dyn Fn(&str) -> Option<Half>) {
        let roots = self.roots();
        let mut stays = self.lasting(&roots);
        stays.extend(keep.iter().map(|id| roots[id.index()]));
        for node in &self.nodes {
            if node.phase == Phase::Update || !node.op.mutates().is_empty() {
                stays.extend(node.inputs.iter().map(|id| roots[id.index()]));
            }
        }
        for node in &self.nodes {
            let Some(half) = half(&node.name).filter(|_| node.phase != Phase::Update) else { continue };
            for (i, output) in node.outputs.iter().enumerate() {
                let value = &mut self.values[output.index()];
                let is_float = value.desc.dtype == DType::F32;
                if is_float && roots[output.index()] == *output && !stays.contains(output) && !node.op.full_precision(i)
                {
                    value.desc.dtype = half.dtype();
                }
            }
        }
        for (i, root) in roots.iter().enumerate() {
            self.values[i].desc.dtype = self.values[root.index()].desc.dtype;
        }
    }

    /// Gives backward copies in 16 bits of the forward values that it reads, so that these themselves need not be kept: forward
    /// computes with what it made. What stays in memory in any case is read as it is, and so is what ops say needs f32.
    ///
    /// # Errors
    /// Never, unless an op is defective.
    pub fn save_halves(&mut self, half: Half) -> Result<(), OpError> {
        let roots = self.roots();
        let lasting = self.lasting(&roots);
        let read: BTreeSet<ValueId> = self
            .nodes
            .iter()
            .filter(|node| node.phase == Phase::Backward)
            .flat_map(|node| node.inputs.iter().map(|id| roots[id.index()]))
            .collect();
        let is_saved = |&root: &ValueId| {
            let value = self.value(root);
            let Some(maker) = value.producer.map(|id| self.node(id)) else { return false };
            let place = maker.outputs.iter().position(|&output| output == root);
            let needs_f32 = place.is_none_or(|place| maker.op.full_precision(place));
            maker.phase == Phase::Forward
                && value.desc.dtype == DType::F32
                && value.desc.numel() > 1
                && !lasting.contains(&root)
                && !needs_f32
        };
        let saved: Vec<ValueId> = read.into_iter().filter(is_saved).collect();
        for root in saved {
            let maker = self.value(root).producer.expect("bug: a saved value that nothing makes");
            let copy = self.push_stored(self.node(maker).name.clone(), Arc::new(Copy), root, half)?;
            self.read_copy(&roots, (root, copy), half)?;
        }
        self.hoist_forward();
        Ok(())
    }

    /// What each value is in the memory of.
    fn roots(&self) -> Vec<ValueId> {
        self.value_ids().map(|id| self.storage_root(id)).collect()
    }

    /// The memory of values that outlive a run or come from outside it.
    fn lasting(&self, roots: &[ValueId]) -> BTreeSet<ValueId> {
        let lasting = self.value_ids().filter(|&id| self.value(id).role != Role::Intermediate);
        lasting.map(|id| roots[id.index()]).collect()
    }

    /// Adds a forward node of this name, whose output is stored in 16 bits.
    fn push_stored(&mut self, name: String, op: Arc<dyn Op>, input: ValueId, half: Half) -> Result<ValueId, OpError> {
        let scope = std::mem::replace(&mut self.scope, name);
        let output = self.apply_forward(op, &[input])?[0];
        self.scope = scope;
        self.values[output.index()].desc.dtype = half.dtype();
        Ok(output)
    }

    /// Has backward read a copy in place of a value and of all views of it.
    fn read_copy(&mut self, roots: &[ValueId], (root, copy): (ValueId, ValueId), half: Half) -> Result<(), OpError> {
        let mut views: Vec<(ValueId, ValueId)> = vec![(root, copy)];
        for n in 0..self.nodes.len() {
            let Node { phase, ref inputs, ref outputs, ref op, ref name, .. } = self.nodes[n];
            if inputs.is_empty() || !inputs.iter().any(|id| roots.get(id.index()) == Some(&root)) {
                continue;
            }
            if phase == Phase::Forward {
                let from = views.iter().find(|(value, _)| *value == inputs[0]).map(|(_, copy)| *copy);
                let (Some(from), true) = (from, op.is_view()) else { continue };
                // The same view, of the copy.
                let (op, name, output) = (op.clone(), name.clone(), outputs[0]);
                let view = self.push_stored(name, op, from, half)?;
                views.push((output, view));
            } else if phase == Phase::Backward {
                for input in &mut self.nodes[n].inputs {
                    if let Some((_, copy)) = views.iter().find(|(value, _)| value == input) {
                        *input = *copy;
                    }
                }
            }
        }
        Ok(())
    }
}
