//! Device profiles: files that keep what was measured of a device.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::AdapterInfo;
use crate::error::DataError;
use crate::files;
use crate::plan::{CostModel, DeviceClass, Limits};
use crate::shader::{Family, Target};

use super::calibrate::Effort;

/// Version of the files. A file of another version is refused.
const FORMAT: u32 = 1;

/// Files are a few KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Names the folder of the files, instead of `tightfit` in the user's data folder.
const FOLDER_VARIABLE: &str = "TIGHTFIT_PROFILES";

/// What a device allows and what things cost on it, as `tightfit calibrate` writes it to a file: enough to plan for the
/// device without having it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    format: u32,
    /// The adapter's name.
    pub adapter: String,
    /// `vulkan`, `metal`, `dx12` or `gl`.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// How much was measured.
    #[serde(default)]
    pub effort: Effort,
    /// What the device allows.
    pub limits: Limits,
    /// What things cost.
    pub costs: CostModel,
}

impl Profile {
    /// More than a file takes.
    pub const MOST_BYTES: u64 = 64 << 10;

    /// What is known of a device, with costs that were measured with this effort.
    pub fn new(device: AdapterInfo, limits: Limits, costs: CostModel, effort: Effort) -> Self {
        let AdapterInfo { name, backend, driver, .. } = device;
        Profile { format: FORMAT, adapter: name, backend, driver, effort, limits, costs }
    }

    /// The costs on so many threads of the CPU, where it was that which was measured.
    pub(super) fn costs_on(self, threads: Option<usize>) -> CostModel {
        match (self.limits.threads, threads) {
            (Some(measured), Some(threads)) => self.costs.on_threads(measured, threads),
            _ => self.costs,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Where it cannot be read or is not a profile.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
        let text = files::read(path, MAX_FILE_BYTES, "`tightfit calibrate --output FILE` writes a device profile")?;
        Profile::parse(&text).map_err(corrupt)
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let again = "measure again with `tightfit calibrate`";
        let no_profile = |error: serde_json::Error| format!("not a device profile ({error}): {again}");
        let Header { format } = serde_json::from_slice(text).map_err(no_profile)?;
        if format != FORMAT {
            return Err(format!("a device profile of format {format}, this tightfit reads {FORMAT}: {again}"));
        }
        let profile: Profile = serde_json::from_slice(text).map_err(no_profile)?;
        profile
            .costs
            .check()
            .map_err(|reason| format!("a device profile with a figure that makes no sense ({reason}): {again}"))?;
        if profile.costs.target.is_some_and(|target| !has_such_family(target.family)) {
            return Err(format!("a device profile with a family of kernels that there is not: {again}"));
        }
        let Limits { max_buffer_bytes, max_binding_bytes, alignment_bytes, baseline_bytes, threads } = profile.limits;
        let sound = (1..=1 << 16).contains(&alignment_bytes)
            && alignment_bytes.is_power_of_two()
            && max_buffer_bytes >= LEAST_BUFFER_BYTES
            && max_binding_bytes >= LEAST_BUFFER_BYTES
            && baseline_bytes <= 1 << 40
            && threads.is_none_or(|threads| (1..=Limits::MOST_THREADS).contains(&threads));
        if !sound {
            return Err(format!("a device profile with limits that no device has: {again}"));
        }
        Ok(profile)
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), DataError> {
        let mut text = serde_json::to_string_pretty(self).expect("bug: a profile that JSON cannot hold");
        text.push('\n');
        files::write_whole(path, text.as_bytes())
    }

    /// Where the profile of an adapter is looked for: in the folder that the environment variable `TIGHTFIT_PROFILES`
    /// names, or in `tightfit` in the user's data folder. `None` where the user has none.
    pub fn path_for(adapter: &AdapterInfo) -> Option<PathBuf> {
        let folder = match std::env::var_os(FOLDER_VARIABLE) {
            Some(folder) if !folder.is_empty() => PathBuf::from(folder),
            _ => etcetera::choose_base_strategy().ok()?.data_dir().join("tightfit"),
        };
        Some(folder.join(file_name(adapter)))
    }

    /// Where the profile of an adapter that was not measured yet is kept; `None` where there is a file already, or the user has no
    /// folder. A file that is of no use was written by someone, and is not replaced unasked.
    pub fn path_for_new(adapter: &AdapterInfo) -> Option<PathBuf> {
        Profile::path_for(adapter).filter(|path| !path.exists() && !path.is_symlink())
    }

    /// The profile kept for an adapter, with its file; `None` where the adapter was not measured, or where its file is of no use.
    /// Costs that make no sense are replaced by those of the adapter's class. What is wrong is a warning in the log: it makes plans predict
    /// worse, and is no reason to refuse a command.
    pub fn find(adapter: &AdapterInfo) -> Option<(Profile, PathBuf)> {
        let path = Profile::path_for(adapter)?;
        let again = "measure again with `tightfit calibrate`, or delete it";
        let text = match files::read(&path, MAX_FILE_BYTES, again) {
            Ok(text) => text,
            // A dangling link is a file that is wrong.
            Err(DataError::Missing { .. }) if !path.is_symlink() => return None,
            Err(error) => {
                log::warn!("{error}: those of its class are used");
                return None;
            }
        };
        match Profile::parse_for(adapter, &text) {
            Ok((profile, wrong)) => {
                for wrong in wrong {
                    log::warn!(
                        "{}: {wrong}: what is usual for its class is used in its place; {again}",
                        path.display()
                    );
                }
                if profile.driver != adapter.driver {
                    let (then, now) = (&profile.driver, &adapter.driver);
                    log::warn!("{}: measured with {then}, now it is {now}; {again}", path.display());
                }
                Some((profile, path))
            }
            Err(reason) => {
                log::warn!("{}: {reason}: those of its class are used; {again}", path.display());
                None
            }
        }
    }

    /// What can be used of a file for this adapter, and what was wrong with the rest. Limits are the adapter's own.
    fn parse_for(adapter: &AdapterInfo, text: &[u8]) -> Result<(Self, Vec<String>), String> {
        let no_profile = |error: serde_json::Error| format!("not a device profile ({error})");
        let mut value: Value = serde_json::from_slice(text).map_err(no_profile)?;
        if value["format"] != FORMAT {
            return Err(format!("a device profile of format {}, this tightfit reads {FORMAT}", value["format"]));
        }
        if value["adapter"] != adapter.name || value["backend"] != adapter.backend {
            let AdapterInfo { name, backend, .. } = adapter;
            return Err(format!("measured on {} ({}), not on {name} ({backend})", value["adapter"], value["backend"]));
        }
        let mut wrong = Vec::new();
        let class = DeviceClass::of(&adapter.device_type);
        let threads = match &value["limits"]["threads"] {
            _ if class != DeviceClass::Cpu => None,
            threads => {
                let known = threads.as_u64().and_then(|threads| usize::try_from(threads).ok());
                known.filter(|threads| (1..=Limits::MOST_THREADS).contains(threads)).or_else(|| {
                    wrong.push(format!("limits.threads = {threads} is no number of threads"));
                    CostModel::class_threads(class)
                })
            }
        };
        value["limits"] = to_value(Limits { threads, ..Limits::default() });
        // It says how much to trust the costs, not what they are.
        if value.get("effort").is_some_and(|effort| serde_json::from_value::<Effort>(effort.clone()).is_err()) {
            wrong.push(format!("effort = {} is neither full nor quick", value["effort"]));
            value["effort"] = to_value(Effort::Quick);
        }
        let usual = CostModel::of_class_on(class, threads);
        complete_costs(&mut value["costs"], &usual, &mut wrong);
        let mut profile: Profile = serde_json::from_value(value).map_err(no_profile)?;
        wrong.extend(profile.costs.repair(&usual));
        Ok((profile, wrong))
    }
}

fn has_such_family(family: Family) -> bool {
    match family {
        Family::Workgroup => true,
        Family::Subgroup { size } => size.is_power_of_two() && size <= 128,
        Family::Cooperative { size, .. } => matches!(size, 8 | 16),
    }
}

fn to_value(from: impl Serialize) -> Value {
    serde_json::to_value(from).expect("bug: a part of a profile that JSON cannot hold")
}

/// Puts default costs in the place of those that are missing or of another type, which is then in `wrong`.
fn complete_costs(costs: &mut Value, usual: &CostModel, wrong: &mut Vec<String>) {
    if usual.target.is_some()
        && let Some(target) = costs.get_mut("target")
        && !serde_json::from_value::<Target>(target.clone()).is_ok_and(|target| has_such_family(target.family))
    {
        wrong.push(format!("target = {target} is no kind of device"));
        *target = to_value(usual.target);
    }
    complete("", costs, &to_value(usual), wrong);
    if let Some(ops) = costs["ops"].as_object_mut() {
        for (op, rates) in ops {
            complete(&format!("ops.{op}"), rates, &to_value(usual.op_rates(op)), wrong);
        }
    }
}

fn complete(name: &str, value: &mut Value, usual: &Value, wrong: &mut Vec<String>) {
    match (value, usual) {
        (Value::Object(entries), Value::Object(usual)) => {
            for (key, usual) in usual {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                match entries.get_mut(key) {
                    // Each op has its own default. A target is right as a whole.
                    Some(Value::Object(_)) if name == "ops" || name == "target" => {}
                    Some(value) => complete(&name, value, usual, wrong),
                    None => {
                        wrong.push(format!("{name} is missing"));
                        entries.insert(key.clone(), usual.clone());
                    }
                }
            }
        }
        (value, usual) if std::mem::discriminant(&*value) != std::mem::discriminant(usual) => {
            let name = if name.is_empty() { "costs" } else { name };
            let kind = if usual.is_number() { "a number" } else { "what it should be" };
            wrong.push(format!("{name} = {value} is not {kind}"));
            *value = usual.clone();
        }
        _ => {}
    }
}

/// Any device has more.
const LEAST_BUFFER_BYTES: u64 = 1 << 20;

/// Letters and digits of the adapter's name and backend.
fn file_name(adapter: &AdapterInfo) -> String {
    let text = format!("{} {}", adapter.name, adapter.backend).to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    format!("{}.json", words.collect::<Vec<_>>().join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{CostSource, Machine};

    fn profile() -> Profile {
        let limits = Limits { baseline_bytes: 123, ..Limits::default() };
        let text = |text: &str| text.to_owned();
        let (adapter, backend, driver) = (text("Some GPU"), text("vulkan"), text("1.2"));
        let effort = Effort::Quick;
        Profile { format: FORMAT, adapter, backend, driver, effort, limits, costs: CostModel::default() }
    }

    fn adapter(name: &str) -> AdapterInfo {
        AdapterInfo {
            index: 0,
            name: name.to_owned(),
            backend: "vulkan".to_owned(),
            driver: String::new(),
            shader_compiler: None,
            device_type: "cpu".to_owned(),
            subgroup_min_size: 0,
            subgroup_max_size: 0,
            max_buffer_bytes: 1 << 30,
            max_binding_bytes: 1 << 27,
            f16: false,
            cooperative_size: 0,
            cooperative_f16_size: 0,
            unified_memory: false,
            missing: Vec::new(),
        }
    }

    #[test]
    fn files_survive_the_round_trip() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("gpu.json");
        profile().save(&path).expect("writes");
        assert_eq!(Profile::load(&path).expect("reads"), profile());
        let machine = Machine::from_profile(&path).expect("reads");
        let source = CostSource::Profile { path, effort: Effort::Quick };
        assert_eq!((machine.limits.baseline_bytes, machine.source), (123, source));
        let missing = Profile::load(&folder.path().join("none.json")).expect_err("is not there");
        assert!(missing.to_string().contains("tightfit calibrate"), "{missing}");
        assert!(Profile::load(folder.path()).expect_err("a folder").to_string().contains("is a folder"));
    }

    #[test]
    fn files_that_are_no_profiles_are_refused_in_one_sentence() {
        let good = serde_json::to_string(&profile()).expect("writes");
        assert_eq!(Profile::parse(good.as_bytes()), Ok(profile()));
        for (from, to, word) in [
            (good.as_str(), "", "not a device profile"),
            (good.as_str(), "\u{1}\u{2}", "not a device profile"),
            (good.as_str(), "[1, 2]", "not a device profile"),
            (good.as_str(), "{\"format\": 2}", "format 2"),
            ("\"format\":1", "\"format\":99", "format 99"),
            ("\"limits\"", "\"limitations\"", "limitations"),
            ("\"run_ns\":", "\"run_ns\":-", "run_ns"),
            ("\"run_ns\":", "\"run_ns\":1e99, \"runs\":", "unknown field"),
            ("\"baseline_bytes\":123", "\"baseline_bytes\":-1", "not a device profile"),
            ("\"baseline_bytes\":123", "\"baseline_bytes\":9999999999999999", "limits"),
            ("\"alignment_bytes\":256", "\"alignment_bytes\":0", "limits"),
            ("\"alignment_bytes\":256", "\"alignment_bytes\":3", "limits"),
            ("\"max_buffer_bytes\":1073741824", "\"max_buffer_bytes\":0", "limits"),
            ("\"Subgroup\"", "\"Warp\"", "Warp"),
            ("{\"Subgroup\":{\"size\":8}}", "{\"Cooperative\":{\"size\":0}}", "family"),
            ("{\"Subgroup\":{\"size\":8}}", "{\"Subgroup\":{\"size\":5}}", "family"),
            ("\"short_code\":false", "\"short_code\":false,\"tiles\":{\"matrices\":{\"huge\":[1,2]}}", "huge"),
        ] {
            let text = good.replace(from, to);
            assert_ne!(text, good, "{from}");
            let message = Profile::parse(text.as_bytes()).expect_err(to);
            assert!(message.contains(word) && message.contains("tightfit calibrate"), "{to}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert!(Profile::parse(&good.as_bytes()[..good.len() / 2]).is_err(), "cut short");
    }

    #[test]
    fn what_is_wrong_in_a_kept_file_is_replaced_and_named() {
        let adapter = adapter("Some GPU");
        let good = serde_json::to_string(&profile()).expect("writes");
        let (found, wrong) = Profile::parse_for(&adapter, good.as_bytes()).expect("reads");
        assert_eq!((found.costs, wrong), (CostModel::default(), Vec::new()));
        let run = format!("\"run_ns\":{}", serde_json::to_string(&CostModel::default().run_ns).expect("a number"));
        for (from, to, word) in [
            (run.as_str(), "\"run_ns\":null", "run_ns = null is not a number"),
            (&run, "\"run_ns\":\"fast\"", "run_ns = \"fast\" is not a number"),
            (&run, "\"run_ns\":-7.5", "run_ns = -7.5 is not a time"),
            (&run, "\"run_ns\":0", "run_ns = 0: less time than any device takes"),
            (&run, "\"run_ns\":1e300", "is not a time"),
            (&format!("{run},"), "", "run_ns is missing"),
            ("\"relu\":{", "\"relu\":{\"launch_ns\":null},\"relu6\":{", "ops.relu.launch_ns = null is not a number"),
            ("\"relu\":{", "\"relu\":3,\"relu6\":{", "ops.relu = 3"),
            ("\"relu\":{", "\"other\":{\"launch_ns\":-1},\"relu\":{", "ops.other.launch_ns = -1 is not a time"),
            ("\"effort\":\"quick\"", "\"effort\":3", "effort = 3 is neither full nor quick"),
            ("\"prefetch\":{", "\"prefetch\":[],\"was\":{", "unknown field"),
            ("\"offload\":{\"fixed_ns\":", "\"offload\":{\"fixed_ns\":-1", "offload.fixed_ns = -1"),
            ("{\"Subgroup\":{\"size\":8}}", "{\"Subgroup\":{\"size\":5}}", "is no kind of device"),
            ("\"unified_memory\":", "\"unified_memory\":null,\"was\":", "unknown field"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            match Profile::parse_for(&adapter, text.as_bytes()) {
                Ok((found, wrong)) => {
                    assert!(wrong.iter().any(|wrong| wrong.contains(word)), "{to}: {wrong:?}");
                    assert_eq!(found.costs.check(), Ok(()), "{to}");
                    assert_eq!(found.costs.op_rates("conv2d"), CostModel::default().op_rates("conv2d"), "{to}");
                }
                Err(reason) => assert!(reason.contains(word), "{to}: {reason}"),
            }
        }
        for (from, to, word) in [
            (good.as_str(), "", "not a device profile"),
            (&good, "[1, 2]", "format null"),
            (&good[good.len() / 2..], "", "not a device profile"),
            ("\"format\":1", "\"format\":99", "format 99"),
            ("Some GPU", "Another", "measured on \"Another\""),
            ("\"run_ns\":", "\"run_ns\":1e999,\"was\":", "not a device profile"),
        ] {
            let reason = Profile::parse_for(&adapter, good.replacen(from, to, 1).as_bytes()).expect_err(to);
            assert!(reason.contains(word) && !reason.contains('\n'), "{to}: {reason}");
        }
        // The limits are those of the device itself.
        let text = good.replacen("\"alignment_bytes\":256", "\"alignment_bytes\":\"x\"", 1);
        assert!(Profile::parse_for(&adapter, text.as_bytes()).expect("reads").1.is_empty());
    }

    #[test]
    fn file_names_come_from_the_adapter() {
        assert_eq!(
            file_name(&adapter("llvmpipe (LLVM 15.0.6, 256 bits)")),
            "llvmpipe-llvm-15-0-6-256-bits-vulkan.json"
        );
        assert_eq!(file_name(&adapter("../../etc/passwd")), "etc-passwd-vulkan.json");
        assert_eq!(file_name(&adapter("…")), "vulkan.json");
    }
}
