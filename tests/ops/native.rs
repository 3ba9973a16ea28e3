//! Link 3 for the CPU: the native form of every op, of its backward and of updates, or what stands in for it, against the twin: with
//! every kind of vectors that this processor has, on one, two and three threads, and with each input whose memory the output may
//! take over. With any number of threads the bits are the same.

use libtest_mimic::Failed;
use tightfit::native::{Cores, Level};
use tightfit::tensor::DType;
use tightfit::testing::{Entry, run_op_on_cpu};

use crate::nodes::{self, Work};
use crate::{Report, cases};

/// Cores with the same vectors, and one, two, three threads.
type Threads = [Cores; 3];

/// All nodes of all cases of an op.
pub fn check(entry: Entry) -> Result<(), Failed> {
    let mut report = Report::default();
    let of_level = |level| [1, 2, 3].map(|threads| Cores::new(threads, level));
    let levels: Vec<Threads> = Level::available().into_iter().map(of_level).collect();
    for case in &cases(entry) {
        let check = |report: &mut Report, work: &Work<'_>| {
            levels.iter().for_each(|threads| check_node(report, threads, work));
        };
        nodes::each(&mut report, entry.name, case, None, check);
        // Vectors are converted alike by all.
        let check = |report: &mut Report, work: &Work<'_>| {
            if work.half().is_some() {
                check_node(report, levels.last().expect("portable code"), work);
            }
        };
        for half in [DType::F16, DType::BF16] {
            nodes::each(&mut report, entry.name, case, Some(half), check);
        }
    }
    report.require(report.checks > 0, "nothing was checked");
    report.finish()
}

fn check_node(report: &mut Report, threads: &Threads, work: &Work<'_>) {
    let op = &*work.node.op;
    let first = work.in_place().filter(|(_, output)| *output == 0).map(|(input, _)| Some(input));
    for in_place in std::iter::once(None).chain(first) {
        let level = threads[0].level();
        let label = format!("{} {} {level:?}, in place {in_place:?}", work.case.name, op.name());
        let run = |cores: &Cores| run_op_on_cpu(cores, op, &work.inputs, in_place).map_err(|error| error.to_string());
        let [single, others @ ..] = threads.each_ref().map(run);
        for (i, other) in others.iter().enumerate() {
            report.require(*other == single, format!("{label}: other bits on {} threads than on one", i + 2));
        }
        work.compare(report, &label, single, false);
    }
}
