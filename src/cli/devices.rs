//! `tightfit devices`: what there is to train on.

use serde_json::json;
use tightfit::device;
use tightfit::plan::format_bytes;

use super::failure::Failure;
use super::output::Output;

pub(crate) fn run(output: &Output) -> Result<u8, Failure> {
    let adapters = device::list()?;
    output.text(format_args!(
        "{:<5}  {:<36}  {:<7}  {:<10}  {:>11}",
        "index", "name", "backend", "type", "largest buffer"
    ));
    for adapter in &adapters {
        let note = if adapter.missing.is_empty() {
            String::new()
        } else {
            format!("  cannot run tightfit: lacks {}", adapter.missing.join(", "))
        };
        output.text(format_args!(
            "{:<5}  {:<36}  {:<7}  {:<10}  {:>14}{note}",
            adapter.index,
            adapter.name,
            adapter.backend,
            adapter.device_type,
            format_bytes(adapter.max_buffer_bytes)
        ));
        if let Some(note) = adapter.compiler_note() {
            output.text(format_args!("       {note}"));
        }
        let mut object = json!(adapter);
        object["compiler_note"] = json!(adapter.compiler_note());
        object["usable"] = json!(adapter.missing.is_empty());
        output.object(&object);
    }
    output.text(format_args!(
        "{:<5}  {:<36}  {:<7}  {:<10}  {:>14}",
        "cpu", "interpreter: exact, slow, no driver", "-", "cpu", "-"
    ));
    output.object(&json!({
        "index": "cpu", "name": "cpu", "backend": "interpreter", "device_type": "cpu", "usable": true,
        "max_buffer_bytes": null, "max_binding_bytes": null, "missing": [],
    }));
    if adapters.is_empty() && !output.is_json() {
        log::warn!("no GPU adapter was found: install a Vulkan, Metal or DX12 driver to train faster than on `cpu`");
    }
    Ok(0)
}
