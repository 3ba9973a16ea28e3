//! `tightfit devices`: what there is to train on.

use serde_json::json;
use tightfit::device::{self, AvailableMemory};
use tightfit::plan::format_bytes;

use super::failure::Failure;
use super::output::{Output, columns};

pub(crate) fn run(output: &Output) -> Result<u8, Failure> {
    let adapters = device::list_with_memory()?;
    let host = AvailableMemory::of_host();
    let row = |index: &str, name: &str, backend: &str, kind: &str, sizes: [&str; 3]| {
        [index, name, backend, kind, sizes[0], sizes[1], sizes[2]].map(str::to_owned)
    };
    let free =
        |memory: Option<AvailableMemory>| memory.map_or("-".to_owned(), |memory| format_bytes(memory.free_bytes));
    let mut rows = vec![row("index", "name", "backend", "type", ["free", "max buffer", "max tensor"])];
    for (adapter, memory) in &adapters {
        // No tensor is larger than what is bound at once, and none is cut into several buffers.
        let tensor_bytes = adapter.max_binding_bytes.min(adapter.max_buffer_bytes);
        let sizes = [free(*memory), format_bytes(adapter.max_buffer_bytes), format_bytes(tensor_bytes)];
        let index = adapter.index.to_string();
        rows.push(row(
            &index,
            &adapter.name,
            &adapter.backend,
            &adapter.device_type,
            sizes.each_ref().map(String::as_str),
        ));
    }
    rows.push(row("cpu", "interpreter: exact, slow, no driver", "-", "cpu", [&free(host), "-", "-"]));
    let lines = columns(&rows, 4, output.width());
    let mut lines = lines.into_iter();
    output.text(lines.next().unwrap_or_default());
    for ((adapter, memory), line) in adapters.iter().zip(&mut lines) {
        let note = if adapter.missing.is_empty() {
            String::new()
        } else {
            format!("  cannot run tightfit: lacks {}", adapter.missing.join(", "))
        };
        output.text(format_args!("{line}{note}"));
        if let Some(note) = adapter.compiler_note() {
            output.text(format_args!("       {note}"));
        }
        let mut object = json!(adapter);
        object["compiler_note"] = json!(adapter.compiler_note());
        object["memory"] = json!(memory);
        object["usable"] = json!(adapter.missing.is_empty());
        output.object(&object);
    }
    output.text(lines.next().unwrap_or_default());
    output.object(&json!({
        "index": "cpu", "name": "cpu", "backend": "interpreter", "device_type": "cpu", "usable": true,
        "memory": host, "max_buffer_bytes": null, "max_binding_bytes": null, "missing": [],
    }));
    if adapters.is_empty() && !output.is_json() {
        log::warn!("no GPU adapter was found: install a Vulkan, Metal or DX12 driver to train faster than on `cpu`");
    }
    Ok(0)
}
