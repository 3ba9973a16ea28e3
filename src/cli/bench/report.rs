//! What was measured, for people and as JSON with the names that the other frameworks' benchmarks use.

use serde_json::{Value, json};
use tightfit::device::AdapterInfo;
use tightfit::plan::{format_bytes, format_ns};

use super::super::output::Output;
use super::super::progress::finite;
use super::super::target::say_budget;
use super::kernels::Profile;
use super::steps::Measured;

const BYTES_PER_MB: f64 = 1_048_576.0;

pub(super) fn show(measured: &Measured, output: &Output) {
    text(measured, output);
    output.object(&object(measured));
}

fn text(measured: &Measured, output: &Output) {
    let &Measured { batch, parameters, warm_s, losses, .. } = measured;
    let told = |value: Option<String>| value.unwrap_or_else(|| "not told by this system".to_owned());
    let row = |name: &str, value: String| output.text(format_args!("{name:<18} {value}"));
    say_budget(measured.available.as_ref(), output);
    let threads = measured.threads.map_or_else(String::new, |threads| format!(", threads: {threads}"));
    output.text(format_args!(
        "{} on {}{threads}: batch {batch}, {parameters} parameters",
        measured.workload.name(),
        measured.device
    ));
    let time = |ms: f64| if ms < 1e4 { format!("{ms:.2} ms") } else { format_ns(ms * 1e6) };
    row(
        "step",
        format!(
            "{}, the median of {}; quickest {}, nine of ten within {}",
            time(measured.quantile_ms(0.5)),
            measured.step_ms.len(),
            time(measured.step_ms[0]),
            time(measured.quantile_ms(0.9))
        ),
    );
    row("samples", format!("{:.1} a second", measured.samples_per_s()));
    row("first step done", told(measured.cold_s.map(|cold_s| format!("{cold_s:.2} s after the process began"))));
    row("warm-up", format!("{warm_s:.2} s"));
    row("loss", format!("{:.4} at first, {:.4} at last", losses[0], losses[1]));
    let compiled = measured.compiled;
    if compiled.kernels > 0 {
        row("kernels", format!("{} compiled in {:.2} s", compiled.kernels, compiled.time.as_secs_f64()));
    }
    row("process", told(measured.memory.map(|memory| memory.text())));
    let planned = if measured.device_bytes == measured.planned_bytes {
        "as planned".to_owned()
    } else {
        format!("planned {}", format_bytes(measured.planned_bytes))
    };
    let budget = measured.budget_bytes.map_or_else(String::new, |budget| format!(", budget {}", format_bytes(budget)));
    row(
        "device",
        format!(
            "{} at most, {planned}{budget}; micro-batches: {}",
            format_bytes(measured.device_bytes),
            measured.micro_batches
        ),
    );
    row("cores busy", told(measured.cores.map(|[other, own]| format!("{own:.2}; by other processes {other:.2}"))));
    if let Some(profile) = &measured.profile {
        profile.show(output);
    }
}

fn object(measured: &Measured) -> Value {
    let mb = |bytes: u64| bytes as f64 / BYTES_PER_MB;
    let part = |name: &str| measured.memory.map(|memory| memory.mb(name));
    let adapter = |part: fn(&AdapterInfo) -> &str| measured.adapter.as_ref().map(part);
    json!({
        "workload": measured.workload.name(),
        "peer": "tightfit",
        "version": env!("CARGO_PKG_VERSION"),
        "precision": measured.precision,
        "save_activations": measured.save_activations,
        "device": measured.device,
        "backend": adapter(|adapter| &adapter.backend),
        "driver": adapter(|adapter| &adapter.driver),
        "device_type": adapter(|adapter| &adapter.device_type),
        "threads": measured.threads,
        "batch": measured.batch,
        "micro_batches": measured.micro_batches,
        "ms": measured.quantile_ms(0.5),
        "min_ms": measured.step_ms[0],
        "p90_ms": measured.quantile_ms(0.9),
        "sps": measured.samples_per_s(),
        "peak_mb": part("peak"),
        "base_mb": part("base"),
        "host_tier_mb": part("host tier"),
        "data_mb": part("data"),
        "kernels_mb": part("kernels"),
        "rest_mb": part("rest"),
        "kernels": measured.compiled.kernels,
        "compile_s": measured.compiled.time.as_secs_f64(),
        "dev_mb": mb(measured.device_bytes),
        "planned_mb": mb(measured.planned_bytes),
        "budget_mb": measured.budget_bytes.map(mb),
        "free_mb": measured.available.map(|memory| mb(memory.free_bytes)),
        "cold_s": measured.cold_s,
        "warm_s": measured.warm_s,
        "steps": measured.step_ms.len(),
        "params": measured.parameters,
        "loss0": finite(f64::from(measured.losses[0])),
        "loss1": finite(f64::from(measured.losses[1])),
        "total_s": measured.total_s,
        "acc": null,
        "other_cores": measured.cores.map(|[other, _]| other),
        "own_cores": measured.cores.map(|[_, own]| own),
        "profile": measured.profile.as_ref().map(Profile::to_json),
    })
}
