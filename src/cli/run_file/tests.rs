//! What run files hold comes back as it was written, and the documentation says what they hold.

use std::path::Path;

use tightfit::train::{Length, Loss, LossScale, MetricKind, Optimizer, Schedule};

use super::super::bytes::Budget;
use super::super::settings::LeverName;
use super::*;

fn parse(text: &str) -> RunFile {
    RunFile::parse(text, Path::new("run.toml")).unwrap_or_else(|failure| panic!("{}\n{text}", failure.message))
}

#[test]
fn what_is_written_is_read_again() {
    let mut file = RunFile::of_model("mnist-mlp".as_ref());
    file.path = Some("run.toml".into());
    assert_eq!(file.to_toml().map_err(|failure| failure.message), Ok("[model]\nname = \"mnist-mlp\"\n".to_owned()));
    file.model.input = Some([1, 28, 28].into_iter().filter_map(NonZeroUsize::new).collect());
    file.model.freeze = vec!["conv1".to_owned()];
    file.model.batch_norm = Some(Statistics::Ghost);
    file.data.seed = Some(7);
    file.training.clip_value = Some(0.1);
    file.metrics.evaluate = vec![MetricKind::f1(), MetricKind::top_k(3), MetricKind::Mae, MetricKind::iou_per_class()];
    file.early_stopping = Some(EarlyStopping { baseline: Some(0.5), ..EarlyStopping::default() });
    file.reduce_on_plateau = Some(ReduceOnPlateau::default());
    file.checkpoint.best = Some(Monitor::new("val_f1"));
    file.checkpoint.every_minutes = Some(0.5);
    file.budget.bytes = Some(Budget::Bytes(u64::MAX));
    file.budget.without = vec![LeverName::Offload];
    file.groups = Some(vec![Group::one_dimensional().weight_decay(0.0), Group::prefix("a.").lr_factor(0.1)]);
    let warm = Schedule::cosine().with_warmup(Length::Epochs(1.5), 0.1);
    let schedules = [
        Schedule::one_cycle(),
        Schedule::step(Length::Steps(3), 0.5),
        Schedule::multi_step([Length::Epochs(1.0), Length::Epochs(2.0)], 0.1),
        Schedule::sequence([Schedule::linear(), warm.clone()], [Length::Epochs(1.0)]),
        warm,
    ];
    let losses = [
        Loss::cross_entropy(),
        Loss::Mae,
        Loss::Huber { delta: 0.1 },
        Loss::Sum { terms: vec![(1.0, Loss::Mae), (0.5, Loss::Mse)] },
    ];
    let other = LossScale::Dynamic { initial: 8.0, growth_interval: 3, growth_factor: 4.0, backoff_factor: 0.25 };
    for scale in [LossScale::None, LossScale::Static(0.1), LossScale::dynamic(), other] {
        file.training.loss_scale = Some(scale);
        assert_eq!(parse(&file.to_toml().expect("writes")), file);
    }
    for schedule in schedules {
        file.schedule = Some(schedule);
        for loss in &losses {
            file.loss = Some(loss.clone());
            for optimizer in Optimizer::KINDS {
                file.optimizer = Some((optimizer.usual)());
                assert_eq!(parse(&file.to_toml().expect("writes")), file);
            }
        }
    }
}

#[test]
fn a_budget_is_read_in_all_forms() {
    for (text, budget) in [
        ("\"auto\"", Budget::Auto),
        ("\"AUTO\"", Budget::Auto),
        ("\"64MiB\"", Budget::Bytes(64 << 20)),
        ("1000", Budget::Bytes(1000)),
    ] {
        let file = parse(&format!("[model]\nname = \"mnist-mlp\"\n[budget]\nbytes = {text}\n"));
        assert_eq!(file.budget.bytes, Some(budget), "{text}");
        let (_, config) = file.resolve(None).map_err(|failure| failure.message).expect("resolves");
        assert_eq!(
            (config.auto_budget, config.budget_bytes.is_some()),
            (budget == Budget::Auto, budget != Budget::Auto)
        );
        let written = file.resolved(&config).and_then(|file| file.to_toml()).map_err(|failure| failure.message);
        assert_eq!(parse(&written.expect("writes")).budget.bytes, Some(budget), "{text}");
    }
}

#[test]
fn the_documented_run_file_is_right() {
    let documentation = include_str!("../../../docs/training.md");
    let block = documentation.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let file = parse(block);
    assert_eq!((file.model(), file.epochs()), ("mnist-cnn".as_ref(), 10));
    assert!(file.validates());
    file.resolve(None).map_err(|failure| failure.message).expect("resolves");
    // All keys stand in the table of keys.
    let mut all = file;
    all.training = TrainingTable {
        grad_norm: true,
        loss_scale: Some(LossScale::dynamic()),
        decay_matrices_only: true,
        ..all.training
    };
    all.data = DataTable { path: Some("f".into()), drop_last: Some(true), validation: Some(true), ..all.data };
    for key in toml::Table::try_from(&all).expect("a table").values().filter_map(toml::Value::as_table) {
        for key in key.keys().filter(|key| !["kind", "lr", "betas", "eps", "weight_decay"].contains(&key.as_str())) {
            assert!(documentation.contains(&format!("`{key}`")), "{key}");
        }
    }
}

#[test]
fn every_seed_can_be_written() {
    let mut file = RunFile::of_model("mnist-mlp".as_ref());
    file.path = Some("run.toml".into());
    for seed in [0, 7, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        file.data.seed = Some(seed);
        assert_eq!(parse(&file.to_toml().expect("writes")), file, "{seed}");
    }
    for (seed, words) in
        [("-1", "0 or above"), ("1.5", "whole number"), ("'18446744073709551616'", "too large"), ("true", "")]
    {
        let text = format!("[model]\nname = 'mnist-mlp'\n[data]\nseed = {seed}\n");
        let error = RunFile::parse(&text, Path::new("run.toml")).expect_err(seed).message;
        assert!(error.contains("line 4") && error.contains(words), "{error}");
    }
}

/// With `TRYCMD=overwrite` they are written anew.
#[test]
fn tables_of_schedules_and_metrics_are_those_of_the_registries() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/training.md");
    let documentation = std::fs::read_to_string(path).expect("readable");
    let row = |kind: &str, settings: &str| format!("| `{kind}` | {settings} |\n");
    let schedules: String = Schedule::KINDS.iter().map(|entry| row(entry.kind, entry.settings)).collect();
    let metrics: String = MetricKind::KINDS.iter().map(|entry| row(entry.kind, entry.settings)).collect();
    let mut fresh = documentation.clone();
    for (head, table) in [
        ("| schedule | settings (default) |\n|---|---|\n", schedules),
        ("| metric | settings (default) and targets |\n|---|---|\n", metrics),
    ] {
        let start = fresh.find(head).expect(head) + head.len();
        let end = start + fresh[start..].find("\n\n").expect("the table ends") + 1;
        fresh.replace_range(start..end, &table);
    }
    if std::env::var_os("TRYCMD").is_some_and(|mode| mode == "overwrite") {
        return std::fs::write(path, fresh).expect("writable");
    }
    assert!(fresh == documentation, "docs/training.md has other tables: run this test with TRYCMD=overwrite");
}
