//! Schedules of the learning rate against PyTorch's, as files and where their settings make no sense.

use serde::Deserialize;
use tightfit::train::{Anneal, Length, LrSchedule, Schedule, Warmup};

#[derive(Deserialize)]
struct Golden {
    case: String,
    settings: Schedule,
    total_steps: u64,
    factors: Vec<f64>,
}

#[test]
fn factors_are_those_of_pytorch() {
    let cases: Vec<Golden> = serde_json::from_str(include_str!("../golden/schedules.json")).unwrap();
    let mut kinds: Vec<_> = cases.iter().map(|golden| golden.settings.kind()).collect();
    for Golden { case, settings, total_steps, factors } in &cases {
        settings.check().unwrap();
        for (step, &expected) in factors.iter().enumerate() {
            let found = settings.factor(step as u64, *total_steps);
            // PyTorch makes each factor of the one before: near 0, what that loses is all that is left.
            let tolerance = 1e-12 * expected.abs() + 1e-15;
            assert!((found - expected).abs() <= tolerance, "{case}, step {step}: {found:e} for {expected:e}");
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), Schedule::KINDS.len(), "a kind without values: {kinds:?}");
}

#[test]
fn after_its_end_a_schedule_stays_where_it_is() {
    for schedule in [Schedule::linear(), Schedule::polynomial(2.0), Schedule::cosine(), Schedule::one_cycle()] {
        let end = schedule.factor(100, 100);
        assert!(end < 1e-5, "{schedule}: {end}");
        for step in [101, 150, 10_000, u64::MAX] {
            assert_eq!(schedule.factor(step, 100), end, "{schedule}, step {step}");
        }
    }
}

#[test]
fn no_length_is_too_short_for_a_factor() {
    let one = Length::Steps(1);
    let schedules = [
        Schedule::constant(),
        Schedule::linear(),
        Schedule::step(one, 0.5),
        Schedule::multi_step([], 0.5),
        Schedule::exponential(0.5, one),
        Schedule::polynomial(1.0),
        Schedule::cosine(),
        Schedule::cosine_restarts(one, 2),
        Schedule::one_cycle(),
        Schedule::sequence([Schedule::cosine(), Schedule::one_cycle()], [one]),
    ];
    for schedule in schedules {
        for total_steps in 0..4 {
            for warmup in [0, 1, 5] {
                let schedule = schedule.clone().with_warmup(Length::Steps(warmup), 0.0);
                schedule.check().unwrap();
                for step in 0..8 {
                    let factor = schedule.factor(step, total_steps);
                    assert!((0.0..=1.0).contains(&factor), "{schedule}, step {step} of {total_steps}: {factor}");
                }
            }
        }
    }
}

#[test]
fn epochs_become_steps() {
    assert_eq!(Length::Epochs(1.5).steps(7), 11);
    assert_eq!(Length::Epochs(0.01).steps(7), 1, "not nothing");
    assert_eq!(Length::Epochs(0.0).steps(7), 0);
    assert_eq!(Length::Steps(3).steps(7), 3);
    let given = r#"{"kind": "sequence", "milestones": ["1 epoch", 30], "schedules": [
        {"kind": "cosine", "length": "2 epochs", "warmup": "0.5 epochs"},
        {"kind": "multi-step", "milestones": ["1 epochs", "2 epochs"]},
        {"kind": "exponential", "gamma": 0.5}
    ]}"#;
    let schedule: Schedule = serde_json::from_str(given).unwrap();
    let steps = |steps| Length::Steps(steps);
    let expected = Schedule::sequence(
        [
            Schedule::Cosine { end_factor: 0.0, length: Some(steps(20)), warmup: Some(Warmup::new(steps(5))) },
            Schedule::multi_step([steps(10), steps(20)], 0.1),
            Schedule::exponential(0.5, steps(10)),
        ],
        [steps(10), steps(30)],
    );
    assert_eq!(schedule.resolve(10), expected);
    assert_eq!(schedule.resolve(10).resolve(99), expected, "it is resolved once");
}

#[test]
fn files_have_names_and_tables() {
    #[derive(Deserialize)]
    struct File {
        schedule: Schedule,
    }
    let read = |text: &str| toml::from_str::<File>(text).map(|file| file.schedule).map_err(|error| error.to_string());
    assert_eq!(read("schedule = 'one-cycle'"), Ok(Schedule::one_cycle()));
    let warm = Schedule::cosine().with_warmup(Length::Steps(5), 0.5);
    assert_eq!(read("[schedule]\nkind = 'cosine'\nwarmup = { length = 5, start_factor = 0.5 }"), Ok(warm));
    let Schedule::OneCycle { anneal_strategy, .. } =
        read("schedule = { kind = 'one-cycle', anneal_strategy = 'linear' }").unwrap()
    else {
        panic!("another kind");
    };
    assert_eq!(anneal_strategy, Anneal::Linear);
    for (text, words) in [
        ("schedule = 'cosin'", "unknown variant `cosin`"),
        ("schedule = 'step'", "missing field `step_size`"),
        ("schedule = { kind = 'cosine', lenght = 3 }", "unknown field `lenght`"),
        ("schedule = { kind = 'cosine', length = -3 }", "cannot be negative"),
        ("schedule = { kind = 'cosine', length = '3 weeks' }", "\"3 epochs\""),
        ("schedule = { kind = 'cosine', length = '-1 epochs' }", "no length"),
        ("schedule = { kind = 'cosine', warmup = { start = 3 } }", "unknown field `start`"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
    // What is written can be read.
    for kind in Schedule::KINDS {
        let one = Length::Steps(1);
        let all = [
            Schedule::constant(),
            Schedule::linear().with_warmup(Length::Epochs(0.3), 0.1),
            Schedule::step(one, 0.1),
            Schedule::multi_step([one, Length::Epochs(2.5)], 0.1),
            Schedule::exponential(0.9, Length::Epochs(1.0)),
            Schedule::polynomial(2.0),
            Schedule::cosine(),
            Schedule::cosine_restarts(one, 2),
            Schedule::one_cycle(),
            Schedule::sequence([Schedule::linear(), Schedule::cosine()], [one]),
        ];
        let schedule = all.into_iter().find(|schedule| schedule.kind() == kind.kind).expect(kind.kind);
        let json = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule, "{json}");
        let text = toml::to_string(&schedule).unwrap();
        assert_eq!(toml::from_str::<Schedule>(&text).unwrap(), schedule, "{text}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_in_one_sentence() {
    let one = Length::Steps(1);
    let mut cases = vec![
        (Schedule::step(Length::Steps(0), 0.1), "step_size = 0 steps"),
        (Schedule::step(one, 0.0), "gamma = 0.0"),
        (Schedule::exponential(f64::NAN, one), "gamma = NaN"),
        (Schedule::exponential(0.9, Length::Epochs(f64::INFINITY)), "interval = inf epochs"),
        (Schedule::multi_step([Length::Steps(5), Length::Steps(5)], 0.1), "milestone 5 steps is not before 5 steps"),
        (Schedule::multi_step([Length::Epochs(-1.0)], 0.1), "milestone -1 epochs"),
        (Schedule::polynomial(-1.0), "power = -1.0"),
        (Schedule::cosine_restarts(one, 0), "t_mult = 0"),
        (Schedule::cosine().with_warmup(Length::Epochs(-1.0), 0.1), "warmup of -1 epochs"),
        (Schedule::cosine().with_warmup(one, -0.1), "start_factor of the warm-up = -0.1"),
        (Schedule::sequence([], []), "0 schedules and 0 milestones"),
        (Schedule::sequence([Schedule::cosine()], [one]), "1 schedules and 1 milestones"),
        (Schedule::sequence([Schedule::polynomial(0.0)], []), "the schedule polynomial"),
    ];
    let mut one_cycle = Schedule::one_cycle();
    if let Schedule::OneCycle { three_phase, pct_start, .. } = &mut one_cycle {
        (*three_phase, *pct_start) = (true, 0.6);
    }
    cases.push((one_cycle, "with three phases it must be in 0..=0.5"));
    for (schedule, words) in cases {
        let error = schedule.check().expect_err(words).to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert!(error.starts_with("the schedule ") && !error.contains(". "), "{error}");
    }
}

#[test]
fn names_elsewhere_are_written_as_they_are_read() {
    for name in Schedule::KINDS.iter().flat_map(|entry| entry.elsewhere) {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{name}");
    }
}
