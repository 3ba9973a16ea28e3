//! `tightfit devices`: what there is to train on, and which is taken where none is named.

use serde_json::{Value, json};
use tightfit::device::{self, AdapterInfo, AvailableMemory};
use tightfit::plan::format_bytes;
use tightfit::train::{Cpu, Processor};

use super::failure::Failure;
use super::output::{Output, columns};

/// Columns: index, name, backend, type, free memory, largest buffer, largest tensor.
type Row = [String; 7];

/// The CPU and the reference, which need no driver.
const HOST: [[&str; 2]; 2] = [["cpu", "native"], ["reference", "reference"]];

pub(crate) fn run(output: &Output) -> Result<u8, Failure> {
    let adapters = device::list_with_memory()?;
    let (host, cpu) = (AvailableMemory::of_host(), Cpu::new(None));
    let (threads, cpu) = (cpu.threads(), cpu.info());
    let free =
        |memory: Option<AvailableMemory>| memory.map_or("-".to_owned(), |memory| format_bytes(memory.free_bytes));
    let mut rows: Vec<Row> =
        vec![["index", "name", "backend", "type", "free", "max buffer", "max tensor"].map(str::to_owned)];
    for (adapter, memory) in &adapters {
        // No tensor is larger than what is bound at once, and none is cut into several buffers.
        let tensor_bytes = adapter.max_binding_bytes.min(adapter.max_buffer_bytes);
        let AdapterInfo { index, name, backend, device_type, max_buffer_bytes, .. } = adapter;
        let sizes = [*max_buffer_bytes, tensor_bytes].map(format_bytes);
        let [buffer, tensor] = sizes;
        rows.push([
            index.to_string(),
            name.clone(),
            backend.clone(),
            device_type.clone(),
            free(*memory),
            buffer,
            tensor,
        ]);
    }
    let plural = if threads == 1 { "" } else { "s" };
    let names = [
        format!("{}: {}, {threads} thread{plural}", cpu.name, cpu.driver),
        "plain Rust: exact and slow, for checking".to_owned(),
    ];
    for ([index, kind], name) in HOST.into_iter().zip(names) {
        let [index, kind, none] = [index, kind, "-"].map(str::to_owned);
        rows.push([index, name, none.clone(), kind, free(host), none.clone(), none]);
    }
    let mut lines = columns(&rows, 4, output.width()).into_iter();
    output.text(lines.next().unwrap_or_default());
    let taken = Taken::find(&adapters);
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
        object["taken"] = json!(taken.index.as_deref() == Some(&*adapter.index.to_string()));
        output.object(&object);
    }
    lines.for_each(|line| output.text(line));
    let of_host = |index: &str, name: &str, driver: Option<&str>, kind: &str| -> Value {
        json!({
            "index": index, "name": name, "backend": "cpu", "driver": driver, "device_type": kind, "usable": true,
            "threads": driver.map(|_| threads),
            "memory": host, "max_buffer_bytes": null, "max_binding_bytes": null, "missing": [],
            "taken": taken.index.is_none() && index == "cpu",
        })
    };
    output.object(&of_host("cpu", &cpu.name, Some(&cpu.driver), "native"));
    output.object(&of_host("reference", "reference", None, "reference"));
    output.text(format_args!("\n{}", taken.reason));
    Ok(0)
}

/// What is taken where nothing is selected.
struct Taken {
    /// The adapter's, or `None` of the CPU.
    index: Option<String>,
    reason: String,
}

impl Taken {
    fn find(adapters: &[(AdapterInfo, Option<AvailableMemory>)]) -> Self {
        if let Some(gpu) = Processor::best_gpu() {
            let reason = format!("without --device, {} trains: the best GPU", gpu.name);
            return Taken { index: Some(gpu.index.to_string()), reason };
        }
        let software = adapters.iter().find(|(adapter, _)| adapter.device_type == "cpu");
        let reason = match software {
            Some((adapter, _)) => format!(
                "without --device, the CPU trains, with native code: there is no GPU, and {} runs kernels on the CPU, \
                 which is slower",
                adapter.name
            ),
            None => "without --device, the CPU trains, with native code: there is no GPU, or no Vulkan, Metal or DX12 driver \
                     for it"
                .to_owned(),
        };
        Taken { index: None, reason }
    }
}
