//! Plans as JSON objects. `docs/json.md` says what the keys mean; a test holds it to this file.

use serde_json::{Map, Value, json};
use tightfit::plan::{ArenaRole, Command, Lever, Plan};
use tightfit::train::{Config, Precision};

fn milliseconds(ns: f64) -> f64 {
    ns / 1e6
}

/// In which formats activations are stored, as a line; nothing where all are f32.
pub(crate) fn precision_line(config: &Config) -> String {
    let mut words = vec![config.precision.to_string()];
    words.extend(config.layer_precision.iter().map(|of| format!("{} {}", of.layer, of.precision)));
    words.extend(config.save_activations.map(|half| format!("copies for backward {half}")));
    let is_usual = words.len() == 1 && config.precision == Precision::F32;
    if is_usual { String::new() } else { format!("{:<20} {}\n", "precision", words.join(", ")) }
}

/// Adds these formats.
pub(crate) fn add_precision(object: &mut Map<String, Value>, config: &Config) {
    let layers = config.layer_precision.iter().map(|of| (of.layer.clone(), json!(of.precision)));
    object.insert("precision".to_owned(), json!(config.precision));
    object.insert("layer_precision".to_owned(), Value::Object(layers.collect()));
    object.insert("save_activations".to_owned(), json!(config.save_activations));
}

/// All figures of a plan. Of a device that is not known, nothing is said of its memory.
pub(crate) fn describe(plan: &Plan, unified_memory: Option<bool>) -> Map<String, Value> {
    let arenas: Vec<_> =
        plan.arenas.iter().map(|arena| json!({"role": name(arena.role), "size_bytes": arena.size_bytes})).collect();
    let fields = [
        ("batch", json!(plan.batch)),
        ("budget_bytes", json!(plan.budget_bytes)),
        ("unconstrained_peak_bytes", json!(plan.unconstrained_peak_bytes)),
        ("unconstrained_step_ms", json!(milliseconds(plan.unconstrained_step_ns as f64))),
        ("minimum_budget_bytes", json!(plan.minimum_budget_bytes)),
        ("planned_peak_bytes", json!(plan.peak_bytes)),
        ("parameters_bytes", json!(plan.arena_bytes(ArenaRole::Parameters))),
        ("buffers_bytes", json!(plan.arena_bytes(ArenaRole::Buffers))),
        ("state_bytes", json!(plan.arena_bytes(ArenaRole::State))),
        ("accumulators_bytes", json!(plan.arena_bytes(ArenaRole::Accumulators))),
        ("transient_bytes", json!(plan.arena_bytes(ArenaRole::Transient))),
        ("staging_bytes", json!(plan.staging.total_bytes())),
        ("device_bytes", json!(plan.baseline_bytes)),
        ("host_bytes", json!(plan.arena_bytes(ArenaRole::Host))),
        ("unified_memory", json!(unified_memory)),
        ("arenas", json!(arenas)),
        ("micro_batches", json!(plan.micro_batches.len())),
        ("micro_batch_sizes", json!(plan.micro_batches)),
        ("saved_activations", json!(format!("{:?}", plan.saved).to_lowercase())),
        ("fused", json!(plan.fused)),
        ("threads", json!(plan.threads)),
        ("programs", programs(plan)),
        ("predicted_step_ms", json!(milliseconds(plan.predicted_step_ns as f64))),
        ("overhead_ms", json!(milliseconds(plan.overhead_ns()))),
        ("overhead", json!(plan.overhead())),
        ("overhead_parts", overhead_parts(plan)),
        ("bound", bound(plan)),
        ("recomputed", lever(plan, Lever::Recompute)),
        ("offloaded", lever(plan, Lever::Offload)),
        ("reasons", reasons(plan)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn name(role: ArenaRole) -> &'static str {
    match role {
        ArenaRole::Parameters => "parameters",
        ArenaRole::Buffers => "buffers",
        ArenaRole::State => "state",
        ArenaRole::Accumulators => "accumulators",
        ArenaRole::Transient => "transient",
        ArenaRole::Host => "host",
    }
}

fn programs(plan: &Plan) -> Value {
    let programs = plan.programs.iter().zip(0..).map(|(program, number)| {
        let count = |wanted: fn(&Command) -> bool| program.commands.iter().filter(|command| wanted(command)).count();
        json!({
            "pass": format!("{:?}", program.pass).to_lowercase(),
            "samples": program.samples,
            "runs": plan.schedule.iter().filter(|&&scheduled| scheduled == number).count(),
            "dispatches": count(|command| matches!(command, Command::Dispatch { .. })),
            "offloads": count(|command| matches!(command, Command::Offload { .. })),
            "prefetches": count(|command| matches!(command, Command::Prefetch { .. })),
            "live_peak_bytes": program.live_peak_bytes,
            "predicted_ms": milliseconds(program.predicted_ns as f64),
        })
    });
    programs.collect()
}

fn overhead_parts(plan: &Plan) -> Value {
    let [recompute_ns, offload_ns, rest_ns] = plan.overhead_parts_ns();
    json!({
        "recompute_ms": milliseconds(recompute_ns),
        "offload_ms": milliseconds(offload_ns),
        "rest_ms": milliseconds(rest_ns),
    })
}

fn bound(plan: &Plan) -> Value {
    let (Some(bound), Some(least_ns), Some(gap)) = (plan.bound, plan.least_overhead_ns(), plan.gap()) else {
        return Value::Null;
    };
    json!({
        "step_ms": milliseconds(bound.step_ns),
        "overhead_ms": milliseconds(least_ns),
        "gap": gap,
        "saved_ms_per_mib": milliseconds(bound.shadow_price_ns_per_byte * f64::from(1 << 20)),
    })
}

fn lever(plan: &Plan, lever: Lever) -> Value {
    let used = plan.lever(lever);
    json!({
        "tensors": used.tensors,
        "size_bytes": used.size_bytes,
        "commands": used.commands,
        "step_ms": milliseconds(used.step_ns as f64),
    })
}

fn reasons(plan: &Plan) -> Value {
    let reasons = plan.reasons.iter().map(|reason| {
        json!({
            "program": reason.program,
            "command": reason.command,
            "lever": reason.lever.to_string(),
            "name": reason.name,
            "size_bytes": reason.size_bytes,
            "absent_commands": reason.absent_commands,
            "cost_ms": milliseconds(reason.cost_ns as f64),
            "text": reason.text,
        })
    });
    reasons.collect()
}
