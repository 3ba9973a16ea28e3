//! Pictures of histories.

use super::History;

/// Three epochs of a classifier with a value that is not a number, a constant, and a metric that only validation has.
fn usual() -> History {
    let mut history = History::default();
    for step in 1..=3_000_u64 {
        let t = step as f64 / 600.0;
        let noise = ((step * 7919 % 1000) as f64 / 1000.0 - 0.5) * 0.6;
        let loss = (2.3 * (-t).exp() + 0.03) * (1.0 + noise);
        let lr = 1e-3 * (1.0 + (std::f64::consts::PI * step as f64 / 3_000.0).cos()) / 2.0;
        history.push_step(step, &[("loss", loss), ("lr", lr), ("accuracy", 1.0 - 0.5 * (-t).exp() + noise * 0.05)]);
        if step % 300 == 0 {
            let val = 2.1 * (-t * 1.1).exp() + 0.08 + 0.004 * t * t;
            history.push_epoch(
                step / 300,
                step,
                &[
                    ("loss", 2.2 * (-t).exp() + 0.03),
                    ("val_loss", val),
                    ("accuracy", 1.0 - 0.5 * (-t).exp()),
                    ("val_accuracy", 1.0 - 0.45 * (-t * 0.9).exp() - 0.02),
                    ("val_f1", if step == 1_500 { f64::NAN } else { 1.0 - 0.7 * (-t * 0.9).exp() }),
                    ("val_auc", 0.5),
                ],
            );
        }
    }
    history
}

fn rest() -> Vec<(&'static str, History)> {
    let mut one_step = History::default();
    one_step.push_step(1, &[("loss", 2.5)]);
    let mut one_epoch = History::default();
    one_epoch.push_epoch(1, 40, &[("loss", 0.5), ("val_loss", 0.7), ("accuracy", 0.8)]);
    let mut not_finite = History::default();
    for step in 1..=40 {
        not_finite
            .push_step(step, &[("loss", if step < 20 { step as f64 } else { f64::NAN }), ("norm", f64::INFINITY)]);
    }
    let mut many = History::default();
    let names: Vec<_> =
        (0..20).map(|n| format!("a metric with a very long name that goes on and on {n} <&>")).collect();
    for epoch in 1..=500_u64 {
        let values: Vec<_> = names.iter().map(|name| (name.as_str(), 1e-12 * epoch as f64)).collect();
        many.push_epoch(epoch, epoch * 100_000, &values);
    }
    vec![
        ("nothing", History::default()),
        ("one-step", one_step),
        ("one-epoch", one_epoch),
        ("not-finite", not_finite),
        ("many", many),
    ]
}

#[test]
fn the_picture_shows_training_and_validation() {
    let history = usual();
    let svg = history.svg("mnist-cnn <&>");
    keep("usual", &svg);
    for word in [
        "mnist-cnn &lt;&amp;&gt;",
        "3000 steps  ·  10 epochs  ·  best val_loss",
        ">loss (logarithmic)<",
        ">steps<",
        ">epochs<",
        ">validation<",
        "val_accuracy 0.",
        "val_f1 0.",
        ">1000<",
        ">lr<",
        ">epoch 1<",
        ">not finite<",
        "val_f1 NaN at step 1500",
    ] {
        assert!(svg.contains(word), "{word} in\n{svg}");
    }
    assert_eq!(svg, history.svg("mnist-cnn <&>"));
    // The gap of a value that is not finite, and what is merged into points.
    assert_eq!(svg.matches("fill-opacity").count(), 3);
    assert!(svg.len() < 300_000);
}

#[test]
fn the_learning_rate_is_that_of_the_steps() {
    let mut history = History::default();
    history.push_step(1, &[("lr", 0.5)]);
    history.push_step(2, &[("lr", 0.25)]);
    // A schedule begins anew with the step to come.
    history.push_epoch(1, 2, &[("lr", 0.75)]);
    let svg = history.svg("m");
    assert!(svg.contains(">lr<") && !svg.contains("lr 0.75"), "{svg}");
    let mut history = History::default();
    history.push_epoch(1, 2, &[("lr", 0.75)]);
    assert!(history.svg("m").contains("lr 0.75 at step 2"), "where steps do not say it, epochs do");
}

#[test]
fn any_history_has_a_picture() {
    for (name, history) in rest() {
        let svg = history.svg(&"title ".repeat(40));
        keep(name, &svg);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // No place of anything is not a number.
        let places = svg.split("=\"").skip(1).filter_map(|rest| rest.split('"').next());
        assert!(places.into_iter().all(|place| !place.contains("NaN") && !place.contains("inf")), "{name}");
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
        let left_out = svg.contains("4 more not shown");
        assert_eq!(left_out, name == "many");
    }
}

/// For looking at them: writes to the folder that `TIGHTFIT_HISTORY` names.
fn keep(name: &str, svg: &str) {
    if let Some(folder) = std::env::var_os("TIGHTFIT_HISTORY") {
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.svg")), svg).expect("writable");
    }
}
