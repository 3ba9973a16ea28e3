//! The command line of tightfit. See the README or `tightfit --help`.

// Not a module of the library: like any other user, the command line sees the public API only.
#[path = "../cli/mod.rs"]
mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
