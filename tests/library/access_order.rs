//! Which workgroup memory a kernel reads before it writes any of it.

use std::collections::BTreeSet;

use naga::{AddressSpace, Block, EntryPoint, Expression, Function, Handle, Module, Statement};

/// The names of such variables.
pub(crate) fn read_first<'a>(module: &'a Module, entry: &'a EntryPoint) -> BTreeSet<&'a str> {
    let mut order = AccessOrder { module, written: BTreeSet::new(), read_first: BTreeSet::new() };
    order.block(&entry.function, &entry.function.body);
    order.read_first
}

/// Follows a kernel through its calls, each branch and each loop once.
struct AccessOrder<'a> {
    module: &'a Module,
    written: BTreeSet<&'a str>,
    read_first: BTreeSet<&'a str>,
}

impl<'a> AccessOrder<'a> {
    /// The variable in workgroup memory that a pointer points into.
    fn variable(&self, function: &'a Function, pointer: Handle<Expression>) -> Option<&'a str> {
        match function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.variable(function, base),
            Expression::GlobalVariable(global) => {
                let global = &self.module.global_variables[global];
                global.name.as_deref().filter(|_| global.space == AddressSpace::WorkGroup)
            }
            _ => None,
        }
    }

    fn read(&mut self, function: &'a Function, pointer: Handle<Expression>) {
        let unwritten = self.variable(function, pointer).filter(|name| !self.written.contains(name));
        self.read_first.extend(unwritten);
    }

    fn block(&mut self, function: &'a Function, block: &'a Block) {
        for statement in block {
            match statement {
                Statement::Emit(range) => {
                    for expression in range.clone() {
                        match function.expressions[expression] {
                            Expression::Load { pointer } => self.read(function, pointer),
                            Expression::CooperativeLoad { ref data, .. } => self.read(function, data.pointer),
                            _ => {}
                        }
                    }
                }
                Statement::WorkGroupUniformLoad { pointer, .. } => self.read(function, *pointer),
                Statement::Store { pointer, .. } => self.written.extend(self.variable(function, *pointer)),
                Statement::CooperativeStore { data, .. } => {
                    self.written.extend(self.variable(function, data.pointer));
                }
                Statement::Block(inner) => self.block(function, inner),
                Statement::If { accept, reject, .. } => {
                    [accept, reject].into_iter().for_each(|branch| self.block(function, branch));
                }
                Statement::Loop { body, continuing, .. } => {
                    [body, continuing].into_iter().for_each(|part| self.block(function, part));
                }
                Statement::Switch { cases, .. } => cases.iter().for_each(|case| self.block(function, &case.body)),
                Statement::Call { function, .. } => {
                    let function = &self.module.functions[*function];
                    self.block(function, &function.body);
                }
                _ => {}
            }
        }
    }
}
