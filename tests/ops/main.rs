//! One suite over all ops of `tightfit::testing::all_ops()`, one test per op and link of the chain of evidence:
//!
//! 1. `golden::<op>`: PyTorch's values and gradients against the CPU twin.
//! 2. `finite_differences::<op>`: central differences in f64 against the twin's backward, under a random gradient.
//! 3. `gpu::<op>`: the twin against each kernel of the op and of its backward, in every variant; `native::<op>`: against its native form
//!    with every kind of vectors that the processor has.
//!
//! `cargo test --release --test ops conv2d` runs what concerns one op. With `TIGHTFIT_QUICK=1`, 2 and 3 take an op's first case
//! only.
#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../../examples/custom_op/swish.rs"]
mod swish;

mod finite_differences;
mod golden;
mod gpu;
mod native;
mod nodes;
mod sample_weights;
mod sums;
mod updates;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tightfit::testing::{Case, Entry};

/// Collects what is wrong with an op, so that one run tells everything.
#[derive(Default)]
struct Report {
    checks: usize,
    failures: Vec<String>,
}

impl Report {
    fn check(&mut self, what: impl std::fmt::Display, result: Result<(), String>) {
        self.checks += 1;
        if let Err(reason) = result {
            self.failures.push(format!("{what}: {reason}"));
        }
    }

    fn require(&mut self, condition: bool, reason: impl std::fmt::Display) {
        self.checks += 1;
        if !condition {
            self.failures.push(reason.to_string());
        }
    }

    fn finish(self) -> Result<(), Failed> {
        const SHOWN: usize = 20;
        if self.failures.is_empty() {
            return Ok(());
        }
        let mut message = format!("{} of {} checks failed\n", self.failures.len(), self.checks);
        for failure in self.failures.iter().take(SHOWN) {
            message += &format!("  {failure}\n");
        }
        if self.failures.len() > SHOWN {
            message += "  …\n";
        }
        Err(message.into())
    }
}

fn is_quick() -> bool {
    std::env::var_os("TIGHTFIT_QUICK").is_some_and(|value| value == "1")
}

/// An op's cases, or the first of them.
fn cases(entry: Entry) -> Vec<Case> {
    let mut cases = (entry.cases)();
    if is_quick() {
        cases.truncate(1);
    }
    cases
}

fn main() -> ExitCode {
    env_logger::init();
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("golden::every_file_is_used", golden::every_file_is_used),
        Trial::test("golden::clip", updates::clip),
        Trial::test("golden::ema", updates::ema),
        Trial::test("golden::weight_recipe", golden::weight_recipe),
        Trial::test("sample_weights::every_loss_has_them", sample_weights::every_loss_has_them),
        Trial::test("sample_weights::ones_change_no_bit", sample_weights::ones_change_no_bit),
        Trial::test("sample_weights::zeros_leave_samples_out", sample_weights::zeros_leave_samples_out),
        Trial::test("sums::of_many_terms", sums::check),
        Trial::test("sums::label_smoothing_of_equal_logits", sums::smoothing_of_equal_logits),
    ];
    for &(name, rule) in updates::OPTIMIZERS {
        trials.push(Trial::test(format!("golden::{name}"), move || updates::check(name, rule)));
    }
    for entry in tightfit::testing::all_ops() {
        let name = entry.name;
        if !updates::checks(name) {
            trials.push(Trial::test(format!("golden::{name}"), move || golden::check(entry)));
        }
        trials.push(Trial::test(format!("finite_differences::{name}"), move || finite_differences::check(entry)));
        trials.push(Trial::test(format!("gpu::{name}"), move || gpu::check(entry)));
        trials.push(Trial::test(format!("native::{name}"), move || native::check(entry)));
    }
    // Ops from outside the crate, without PyTorch's values.
    for entry in swish::ENTRIES {
        let name = entry.name;
        trials.push(Trial::test(format!("finite_differences::{name}"), move || finite_differences::check(entry)));
        trials.push(Trial::test(format!("gpu::{name}"), move || gpu::check(entry)));
        trials.push(Trial::test(format!("native::{name}"), move || native::check(entry)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
