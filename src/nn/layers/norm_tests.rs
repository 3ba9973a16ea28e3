use super::*;
use crate::nn::{Mode, Model, Sequential};

fn error(model: &Sequential) -> String {
    model.build(2).expect_err("must be refused").to_string()
}

#[test]
fn normalizations_have_the_tensors_pytorch_would_give_them() {
    let image = || Sequential::new("m", [6, 4, 5]);
    let state = |model: Sequential| {
        let entries = Model::from(model).state_dict().expect("builds");
        entries.into_iter().map(|(name, shape)| format!("{name} {shape}")).collect::<Vec<_>>()
    };
    let tracked = ["bn1.running_mean [6]", "bn1.running_var [6]", "bn1.num_batches_tracked []"];
    let trained = ["bn1.weight [6]", "bn1.bias [6]"];
    assert_eq!(state(image().batch_norm()), [&trained[..], &tracked].concat());
    assert_eq!(state(image().push(BatchNorm::new().affine(false))), tracked);
    assert_eq!(state(image().push(BatchNorm::new().track_running_stats(false))), trained);
    assert_eq!(state(image().layer_norm()), ["norm1.weight [5]", "norm1.bias [5]"]);
    assert_eq!(state(image().push(LayerNorm::new().dims(3).bias(false))), ["norm1.weight [6, 4, 5]"]);
    assert_eq!(state(image().group_norm(3)), ["norm1.weight [6]", "norm1.bias [6]"]);
    assert_eq!(state(image().rms_norm()), ["norm1.weight [5]"]);
    assert_eq!(state(image().push(InstanceNorm::new().affine(true))), ["norm1.weight [6]", "norm1.bias [6]"]);
    let none = image().instance_norm().push(LayerNorm::new().affine(false)).push(RmsNorm::new().affine(false));
    assert!(state(none.push(GroupNorm::new(2).affine(false))).is_empty());
    let built = image().batch_norm().build(2).expect("builds");
    let inits: Vec<_> = built.parameters.iter().chain(&built.buffers).map(|tensor| tensor.init).collect();
    assert_eq!(inits, [Init::ONES, Init::ZEROS, Init::ZEROS, Init::ONES]);
    let every = image().batch_norm().layer_norm().group_norm(2).instance_norm().rms_norm();
    assert_eq!(every.output_shape().expect("builds")[..], [6, 4, 5]);
}

#[test]
fn batch_norm_follows_the_mode() {
    let ops = |model: &Model, samples: usize, batch: usize, mode: Mode| {
        let built = model.build_part(samples, batch, mode).expect("builds");
        let ops: Vec<_> = built.graph.nodes().iter().map(|node| node.op.name()).collect();
        (ops.join(" "), built.buffer_updates)
    };
    let model = Model::from(Sequential::new("m", [3, 2]).push(BatchNorm::new().momentum(0.2)));
    let (exact, buffer_updates) = ops(&model, 4, 4, Mode::Train(Statistics::Exact));
    assert_eq!(exact, "batch_norm");
    let figures: Vec<_> = buffer_updates.iter().map(|update| (update.momentum, update.factor)).collect();
    assert_eq!(figures, [(0.2, 1.0), (0.2, 8.0 / 7.0)]);
    assert_eq!(ops(&model, 4, 4, Mode::Train(Statistics::Ghost)).0, "batch_norm");
    let (part, buffer_updates) = ops(&model, 2, 4, Mode::Train(Statistics::Ghost));
    assert_eq!(part, "batch_norm scale");
    assert!(buffer_updates.iter().all(|update| update.factor == 1.0));
    for mode in [Mode::Train(Statistics::Frozen), Mode::Evaluate] {
        let (given, buffer_updates) = ops(&model, 4, 4, mode);
        assert_eq!(given, "batch_norm_eval");
        assert!(buffer_updates.is_empty());
    }
    let frozen = Model::from(Sequential::new("m", [3, 2]).push(BatchNorm::new().frozen(true)));
    for statistics in [Statistics::Exact, Statistics::Ghost, Statistics::Frozen] {
        let (frozen, buffer_updates) = ops(&frozen, 4, 4, Mode::Train(statistics));
        assert!(frozen == "batch_norm_eval" && buffer_updates.is_empty());
    }
    let untracked = Model::from(Sequential::new("m", [3]).push(BatchNorm::new().track_running_stats(false).relu(true)));
    assert_eq!(ops(&untracked, 4, 4, Mode::Evaluate).0, "batch_norm");
    assert_eq!(ops(&untracked, 1, 1, Mode::Evaluate).0, "group_norm relu");
    let (untracked, buffer_updates) = ops(&untracked, 4, 4, Mode::Train(Statistics::Frozen));
    assert!(untracked == "batch_norm" && buffer_updates.is_empty());
}

#[test]
fn normalizations_say_what_they_cannot_do() {
    let image = || Sequential::new("m", [6, 4, 5]);
    assert!(error(&image().group_norm(4)).contains("groups = 4 must divide 6 channels"));
    assert!(error(&image().group_norm(0)).contains("groups must be at least 1"));
    assert!(error(&image().push(LayerNorm::new().dims(4))).contains("dims must be 1 to 3"));
    assert!(error(&image().push(RmsNorm::new().dims(0))).contains("dims must be 1 to 3"));
    assert!(error(&image().push(BatchNorm::new().momentum(1.5))).contains("momentum must be a number from 0 to 1"));
    assert!(error(&image().push(LayerNorm::new().eps(0.0))).contains("eps = 0 is not possible"));
    assert!(error(&Sequential::new("m", [6]).instance_norm()).contains("more than one value per channel"));
    let model = Model::from(Sequential::new("m", [6]).batch_norm());
    let alone = model.build(1, Mode::Train(Statistics::Exact)).expect_err("one value").to_string();
    assert!(alone.contains("bn1") && alone.contains("more than one value per channel"), "{alone}");
}
