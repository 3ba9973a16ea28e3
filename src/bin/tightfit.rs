//! The command line of tightfit. See the README or `tightfit --help`.

// Not a module of the library: like any other user, the command line sees the public API only.
#[path = "../cli/mod.rs"]
mod cli;

fn main() -> std::process::ExitCode {
    #[cfg(all(unix, not(target_os = "macos")))]
    no_display::make_it_known();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    few_heaps();
    cli::main()
}

/// The C library reserves 64 MiB and more of address space for each thread that takes memory, which a limit on it (`ulimit -v`) counts as
/// used. Threads share two heaps: they take little.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn few_heaps() {
    #[allow(unsafe_code)]
    // SAFETY: sets a number of the allocator's, in a process that has no thread but this one.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Where there is no Wayland display, Mesa looks for one nevertheless, and its search prints an error for each instance.
#[cfg(all(unix, not(target_os = "macos")))]
mod no_display {
    use std::env;
    use std::path::Path;

    const DISPLAY: &str = "WAYLAND_DISPLAY";
    /// An absolute path, so that no folder of displays is needed; no display answers there.
    const NONE: &str = "/dev/null";

    pub(crate) fn make_it_known() {
        let is_absolute = |name: &str| env::var_os(name).is_some_and(|value| Path::new(&value).is_absolute());
        if !is_absolute("XDG_RUNTIME_DIR") && !is_absolute(DISPLAY) {
            #[allow(unsafe_code)]
            // SAFETY: the process has just begun and has no thread but this one.
            unsafe {
                env::set_var(DISPLAY, NONE);
            }
        }
    }
}
