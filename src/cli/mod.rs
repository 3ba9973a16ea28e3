//! `tightfit devices | calibrate | plan | advise | summary | train | resume | runs | eval | predict | convert | data | bench`.

mod advise;
mod bar;
mod bench;
mod bytes;
mod calibrate;
mod convert;
mod data;
mod describe;
mod devices;
mod eval;
mod explore;
mod failure;
mod find_lr;
mod first_use;
mod interrupt;
mod layers;
mod memory;
mod model_file;
mod model_words;
mod notes;
mod output;
mod overwrite;
mod plan;
mod predict;
mod progress;
mod resume;
mod run_file;
mod run_folder;
mod runs;
mod session;
mod settings;
mod summary;
mod target;
mod toml_parts;
mod trace;
mod train;
#[cfg(feature = "tui")]
mod tui;
#[cfg(not(feature = "tui"))]
#[path = "no_tui.rs"]
mod tui;
mod values;
mod weights;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use failure::{BAD_INPUT, Failure};
use output::Output;
use tightfit::command::unknown;

const EXIT_CODES: &str = "\
Exit codes: 0 done, 2 files, devices or settings are not right, 3 no plan meets the budget, \
4 training cannot go on, 5 a result could not be written where it was wanted, 130 interrupted";

/// Trains neural networks on any GPU, and on CPUs, inside a byte budget.
#[derive(Parser, Debug)]
#[command(name = "tightfit", version, after_help = EXIT_CODES, arg_required_else_help = false)]
struct Cli {
    /// One JSON object per line on standard output, and nothing else there; docs/json.md lists the keys
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists the devices that can train
    Devices,
    /// Measures what ops cost on a device, so that plans for it predict their time
    Calibrate(calibrate::CalibrateArgs),
    /// Shows what training a model takes, before anything runs; needs no GPU
    Plan(Box<plan::PlanArgs>),
    /// Says why a model needs the memory that it does, and what each remedy would save
    Advise(Box<advise::AdviseArgs>),
    /// Lists the layers of a model, with shapes, parameters and the bytes that training takes for each
    Summary(Box<layers::SummaryArgs>),
    /// Trains a model and tests it
    Train(Box<train::TrainArgs>),
    /// Goes on with the training of a run folder that was interrupted
    Resume(resume::ResumeArgs),
    /// Compares the trainings of run folders
    Runs(runs::RunsArgs),
    /// Tests a model with weights from a file
    Eval(eval::EvalArgs),
    /// Says what a trained model makes of new images, rows, series or text, as CSV or JSON
    Predict(predict::PredictArgs),
    /// Writes a model or its weights in another format: safetensors, ONNX, Keras
    Convert(convert::ConvertArgs),
    /// Fetches datasets
    #[command(subcommand, arg_required_else_help = false)]
    Data(data::DataCommand),
    /// Measures training steps of known workloads, or the planner itself
    Bench(bench::BenchArgs),
}

impl Command {
    /// The model that it was asked about, as it was given.
    fn model(&self) -> Option<&OsStr> {
        match self {
            Command::Plan(args) => Some(args.model()),
            Command::Advise(args) => Some(args.model()),
            Command::Summary(args) => Some(args.model()),
            Command::Train(args) => Some(args.model()),
            Command::Eval(args) => Some(args.model()),
            Command::Predict(args) => Some(args.model()),
            _ => None,
        }
    }
}

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    Logger::begin();
    interrupt::outlive_file_limits();
    let args: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                let output = Output::new(false);
                output.note(error.print().and_then(|()| io::stdout().flush()));
                return output.failure().map_or(ExitCode::SUCCESS, |failure| report(&output, &failure));
            }
            // What was asked for is not known in full: the flag may stand anywhere.
            let output = Output::new(args.iter().any(|arg| arg == "--json"));
            return report(&output, &usage(&error, &args));
        }
    };
    let output = Output::new(cli.json);
    progress::show_compilation(&output);
    let result = match &cli.command {
        Command::Devices => devices::run(&output),
        Command::Calibrate(args) => calibrate::run(args, &output),
        Command::Plan(args) => plan::run(args, &output),
        Command::Advise(args) => advise::run(args, &output),
        Command::Summary(args) => layers::run(args, &output),
        Command::Train(args) => train::run(args, &output),
        Command::Resume(args) => resume::run(args, &output),
        Command::Runs(args) => runs::run(args, &output),
        Command::Eval(args) => eval::run(args, &output),
        Command::Predict(args) => predict::run(args, &output),
        Command::Convert(args) => convert::run(args, &output),
        Command::Data(command) => data::run(command, &output),
        Command::Bench(args) => bench::run(args, &output),
    };
    let result = result.map_err(|failure| failure.of(cli.command.model()));
    match result.and_then(|exit_code| output.failure().map_or(Ok(exit_code), Err)) {
        Ok(exit_code) => ExitCode::from(exit_code),
        Err(failure) => report(&output, &failure),
    }
}

/// Warnings in one sentence, as errors are; whoever asks for more by `RUST_LOG` gets the time and the module too.
fn logger() -> env_logger::Builder {
    let mut logger = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"));
    if std::env::var_os(env_logger::DEFAULT_FILTER_ENV).is_none() {
        logger.format(|out, record| {
            let level = if record.level() == log::Level::Warn { "warning" } else { "error" };
            writeln!(out, "{}", for_people(&format!("{level}: {}", record.args())))
        });
    }
    logger
}

/// Writes to standard error; while a screen is drawn, there.
struct Logger(env_logger::Logger);

impl Logger {
    fn begin() {
        let logger = Logger(logger().build());
        log::set_max_level(logger.0.filter());
        // There is none before.
        let _ = log::set_boxed_logger(Box::new(logger));
    }
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = || record.level().to_string().to_lowercase().replace("warn", "warning");
        let is_kept = notes::is_on()
            && self.0.matches(record)
            && notes::keep(notes::Stream::Err, &format!("{}: {}", level(), record.args()));
        if !is_kept {
            self.0.log(record);
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// No wider than the terminal, where standard error is one.
fn for_people(line: &str) -> String {
    if io::stderr().is_terminal() { output::wrapped(line, textwrap::termwidth()) } else { line.to_owned() }
}

/// Names may hold anything.
fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn report(output: &Output, failure: &Failure) -> ExitCode {
    output.object(&failure.to_json());
    // Standard error may be closed; the exit code still says it.
    let _ = writeln!(io::stderr(), "{}", for_people(&format!("error: {}", on_one_line(&failure.message))));
    ExitCode::from(failure.exit_code)
}

/// That a value ended where its first word did, such as that of `--budget 64 MiB`.
fn cut_short(error: &clap::Error, args: &[OsString]) -> Option<Failure> {
    // A stray word may be taken for a command.
    let found = error.get(ContextKind::InvalidSubcommand).or_else(|| error.get(ContextKind::InvalidArg));
    let ContextValue::String(found) = found? else { return None };
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let at = args.iter().position(|arg| arg == found).filter(|_| !found.starts_with('-'))?;
    let option = args[..at].iter().rposition(|arg| arg.starts_with("--"))?;
    let (name, first) =
        args[option].split_once('=').map_or((&*args[option], None), |(name, first)| (name, Some(first)));
    let words: Vec<&str> = first.into_iter().chain(args[option + 1..at].iter().map(|word| &**word)).collect();
    if words.is_empty() || !takes_value(&Cli::command(), name.trim_start_matches('-')) {
        return None;
    }
    let whole = if words.len() > 1 { words.join(" ") } else { format!("{} {found}", words[0]) };
    Some(Failure::bad_input(format!(
        "unexpected `{}` after {name} {}: a value is one word, several have commas between them; else write {name} \"{whole}\"",
        found.escape_debug(),
        words.join(" ")
    )))
}

/// Whether an option of a command, or of one below it, has a value.
fn takes_value(command: &clap::Command, option: &str) -> bool {
    let is_named = |arg: &&clap::Arg| arg.get_long() == Some(option) && arg.get_action().takes_values();
    command.get_arguments().any(|arg| is_named(&arg))
        || command.get_subcommands().any(|below| takes_value(below, option))
}

/// Characters of a value that an error repeats.
const MOST_SHOWN: usize = 60;

/// What a reader needs to know a value again.
fn shortened(value: &str) -> String {
    let end = value.char_indices().nth(MOST_SHOWN).map(|(end, _)| end);
    end.map_or_else(|| value.to_owned(), |end| format!("{}…", &value[..end]))
}

/// clap's error in one line.
fn usage(error: &clap::Error, args: &[OsString]) -> Failure {
    if let Some(failure) = cut_short(error, args) {
        return failure;
    }
    if error.kind() == ErrorKind::MissingSubcommand {
        let Some(ContextValue::Strings(commands)) = error.get(ContextKind::ValidSubcommand) else {
            return Failure::bad_input("a command is missing: see tightfit --help");
        };
        return Failure::bad_input(format!("a command is missing: choose one of {}", commands.join(", ")));
    }
    if error.kind() == ErrorKind::ValueValidation {
        let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
        let argument = context(ContextKind::InvalidArg);
        let argument = argument.split_whitespace().next().unwrap_or_default();
        let value = context(ContextKind::InvalidValue);
        let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        return Failure::bad_input(format!("{argument} `{}`: {reason}", shortened(&value).escape_debug()));
    }
    let strings = |kind| match error.get(kind) {
        Some(ContextValue::Strings(strings)) => strings.iter().map(String::as_str).collect(),
        Some(ContextValue::String(string)) => vec![string.as_str()],
        _ => Vec::new(),
    };
    let (valid, wrong) = (strings(ContextKind::ValidValue), strings(ContextKind::InvalidValue));
    if let (ErrorKind::InvalidValue, [wrong], [argument]) =
        (error.kind(), &wrong[..], &strings(ContextKind::InvalidArg)[..])
    {
        if wrong.is_empty() {
            return Failure::bad_input(format!("{argument}: nothing was given"));
        }
        let argument = argument.split_whitespace().next().unwrap_or_default();
        return Failure::bad_input(format!("{argument}: {}", unknown("value", wrong, valid)));
    }
    let unknown_name = match error.kind() {
        ErrorKind::UnknownArgument => Some(("option", ContextKind::InvalidArg, ContextKind::SuggestedArg)),
        ErrorKind::InvalidSubcommand => {
            Some(("command", ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand))
        }
        _ => None,
    };
    if let Some((what, wrong, near)) = unknown_name
        && let ([wrong, ..], [near, ..]) = (&strings(wrong)[..], &strings(near)[..])
    {
        return Failure::bad_input(format!("unknown {what} `{}`: did you mean `{near}`?", wrong.escape_debug()));
    }
    // What clap says of others: how to pass them as a value.
    if let Some((what, wrong, _)) = unknown_name
        && let [wrong, ..] = strings(wrong)[..]
        && (what == "command" || wrong.starts_with('-'))
    {
        return Failure::bad_input(format!("unknown {what} `{}`: --help lists what there is", wrong.escape_debug()));
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text.find("\nUsage:").or_else(|| text.find("\nFor more information")).unwrap_or(text.len());
    let line = text[..end].split_whitespace().collect::<Vec<_>>().join(" ");
    debug_assert_eq!(error.exit_code(), i32::from(BAD_INPUT));
    Failure::bad_input(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(args: &[&str]) -> String {
        let all: Vec<OsString> = ["tightfit"].iter().chain(args).map(OsString::from).collect();
        usage(&Cli::try_parse_from(&all).expect_err("must be refused"), &all).message
    }

    #[test]
    fn usage_errors_are_one_clear_line() {
        for budget in ["0", "-5", "1e400", "NaN", "", "99999999999TiB", "5 apples"] {
            let text = message(&["plan", "mnist-cnn", "--budget", budget]);
            assert!(text.starts_with(&format!("--budget `{budget}`: ")) && !text.contains('\n'), "{text}");
        }
        assert!(
            message(&["plan", "mnist-cnn", "--batch", "-5"]).starts_with("--batch `-5`: it must be a whole number")
        );
        assert!(message(&["train"]).contains("<MODEL>"));
        assert_eq!(message(&["train", "m", "--save", ""]), "--save <FILE>: nothing was given");
        assert_eq!(message(&["train", "m", "--data="]), "--data <PATH>: nothing was given");
        for command in ["plan", "train", "eval"] {
            assert_eq!(message(&[command, "", "--weights", "w"][..2]), "<MODEL>: nothing was given");
        }
        for args in [&["plan", "m", "--device", ""][..], &["train", "m", "--device="], &["calibrate", "--device="]] {
            assert_eq!(message(args), "--device <DEVICE>: nothing was given");
        }
        let digits = "9".repeat(300);
        let text = message(&["plan", "m", "--weight-decay", &digits]);
        assert!(text.starts_with("--weight-decay `999") && text.len() < 200, "{text}");
        for (args, words) in [
            (&["plan", "m", "--budget", "64", "MiB"][..], "unexpected `MiB` after --budget 64: a value is one word"),
            (&["plan", "m", "--budget", "64", "MiB"], "else write --budget \"64 MiB\""),
            (&["plan", "m", "--budget=64", "MiB"], "unexpected `MiB` after --budget 64"),
            (&["plan", "--budget", "64", "MiB", "m"], "else write --budget \"64 MiB\""),
            (&["plan", "m", "--without", "recompute", "offload"], "several have commas between them"),
            (&["bench", "w1", "--budget", "1", "GB"], "write --budget \"1 GB\""),
        ] {
            assert!(message(args).contains(words), "{args:?}: {}", message(args));
        }
        for args in [&["plan", "m", "more"][..], &["plan", "--json", "m", "more"], &["plan", "--sweep", "m", "more"]] {
            assert!(message(args).contains("more") && !message(args).contains("after"), "{args:?}: {}", message(args));
        }
        for (args, expected) in [
            (&["train", "m", "--nothing"][..], "unknown option `--nothing`: --help lists what there is"),
            (&["train", "m", "-b", "4"], "unknown option `-b`: --help lists what there is"),
            (&["fit"], "unknown command `fit`: --help lists what there is"),
            (
                &["train", "m", "--batch", "18446744073709551616"],
                "--batch `18446744073709551616`: it is too large a number",
            ),
        ] {
            assert_eq!(message(args), expected);
        }
        for (args, expected) in [
            (&["train", "m", "--optimizer", "adamax"][..], "--optimizer: unknown value `adamax`: did you mean `adam`?"),
            (&["plan", "m", "--without", "ofload"], "--without: unknown value `ofload`: did you mean `offload`?"),
            (&["plan", "m", "--batch-norm", "gost"], "--batch-norm: unknown value `gost`: did you mean `ghost`?"),
            (&["plan", "m", "--bugdet", "8G"], "unknown option `--bugdet`: did you mean `--budget`?"),
            (&["trian", "m"], "unknown command `trian`: did you mean `train`?"),
            (&["data", "mnits"], "unknown command `mnits`: did you mean `mnist`?"),
            (&["bench", "v9"], "[WORKLOAD]: unknown value `v9`: choose one of w1, w2, w3, w3b, w4, w5"),
        ] {
            assert!(message(args).starts_with(expected), "{}", message(args));
        }
        assert!(Cli::try_parse_from(["tightfit", "plan", "m", "--optimizer", "AdamW", "--without", "Offload"]).is_ok());
        assert!(message(&[]).contains("train"));
        assert!(message(&["data"]).contains("mnist"));
        assert!(!message(&["train"]).contains('\n'));
    }

    #[test]
    fn documented_commands_and_options_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let docs = std::fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("readable").path());
        let documents = ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into_iter().chain(docs);
        let is_markdown = |path: &std::path::PathBuf| path.extension() == Some(OsStr::new("md"));
        let mut commands = 0;
        for path in documents.filter(is_markdown) {
            let text = std::fs::read_to_string(&path).expect("readable");
            for block in text.split("```sh\n").skip(1) {
                let block = block.split("```").next().expect("its end");
                for line in block.lines().filter(|line| line.starts_with("tightfit ")) {
                    let words = line.split('#').next().expect("a command").split_whitespace();
                    assert!(Cli::try_parse_from(words).is_ok(), "{}: {line}", path.display());
                    commands += 1;
                }
            }
        }
        assert!(commands >= 10, "only {commands} commands");

        // Rows of tables: | `--batch N` | or | `train --epochs N`, `train --steps N` |
        let mut options = 0;
        let rows = include_str!("../../docs/command-line.md").lines().filter_map(|line| line.strip_prefix("| `"));
        for cell in rows.map(|row| row.split(" |").next().expect("a cell")).filter(|cell| cell.contains("--")) {
            for option in cell.split("`, `").map(|option| option.trim_matches('`')) {
                let (command, option) = option.split_once("--").expect("an option");
                let name = option.split(' ').next().expect("its name");
                let names = if command.is_empty() { "train" } else { command };
                let cli = Cli::command();
                let find = |of: &clap::Command, name: &str| of.find_subcommand(name).cloned();
                let of = names.split_whitespace().try_fold(cli.clone(), |of, name| find(&of, name));
                let of = of.unwrap_or_else(|| panic!("{names} of {cell}"));
                let mut arguments = of.get_arguments().chain(cli.get_arguments());
                assert!(arguments.any(|argument| argument.get_long() == Some(name)), "there is no --{name}: {cell}");
                options += 1;
            }
        }
        assert!(options > 20, "only {options} options");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
