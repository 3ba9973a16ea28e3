use super::*;
use crate::graph::Role;
use crate::models;

pub(super) fn names(model: impl Into<Model>) -> Vec<String> {
    let built = model.into().build(3, Mode::Evaluate).expect("builds");
    built.parameters.iter().map(|p| format!("{} {}", p.name, built.graph.value(p.value).desc.shape)).collect()
}

pub(super) fn error(model: &Sequential) -> String {
    model.build(2).expect_err("must be refused").to_string()
}

#[test]
fn mnist_cnn_has_the_parameters_pytorch_would_give_it() {
    let model = models::mnist_cnn(10);
    assert_eq!(
        names(&model),
        [
            "conv1.weight [32, 1, 3, 3]",
            "conv1.bias [32]",
            "conv2.weight [64, 32, 3, 3]",
            "conv2.bias [64]",
            "linear1.weight [128, 9216]",
            "linear1.bias [128]",
            "linear2.weight [10, 128]",
            "linear2.bias [10]",
        ]
    );
    assert_eq!(model.parameter_count().expect("builds"), 1_199_882);
    assert_eq!(model.output_shape().expect("builds")[..], [10]);
    let layers = model.build_layers(1, 1, Mode::Evaluate).expect("builds").1;
    let layers: Vec<_> = layers.into_iter().map(|layer| layer.name).collect();
    assert_eq!(layers, ["conv1", "relu1", "conv2", "relu2", "pool1", "flatten1", "linear1", "relu3", "linear2"]);
}

#[test]
fn every_builtin_builds() {
    for name in models::NAMES {
        let model = models::builtin(name).expect("listed");
        assert_eq!(model.name(), name);
        let built = model.build(2, Mode::Evaluate).expect("builds");
        assert_eq!(built.graph.value(built.input).name, "input");
        assert_eq!(built.graph.value(built.input).role, Role::Input);
        assert_eq!(built.graph.value(built.output).desc.shape[0], 2);
        if name.starts_with("mnist-") {
            assert_eq!(model.output_shape().expect("builds")[..], [10]);
        }
    }
    assert!(models::builtin("mnist").is_none());
    assert_eq!(models::mnist_mlp(10).parameter_count().expect("builds"), 669_706);
}

#[test]
fn lstm_parameters_are_named_as_in_pytorch() {
    assert_eq!(
        names(models::mnist_lstm(10)),
        [
            "lstm1.weight_ih_l0 [512, 28]",
            "lstm1.weight_hh_l0 [512, 128]",
            "lstm1.bias_ih_l0 [512]",
            "lstm1.bias_hh_l0 [512]",
            "linear1.weight [10, 128]",
            "linear1.bias [10]",
        ]
    );
}

#[test]
fn linear_works_at_each_time_step() {
    let model = Sequential::new("m", [7, 3]).push(Lstm::new(5).return_sequences(true)).linear(4);
    assert_eq!(model.output_shape().expect("builds")[..], [7, 4]);
    assert_eq!(names(&model)[4..], ["linear1.weight [4, 5]", "linear1.bias [4]"]);
}

#[test]
fn every_layer_reports_its_shape() {
    let shape = |model: Sequential| model.output_shape().expect("builds").to_string();
    let image = || Sequential::new("m", [4, 9, 7]);
    assert_eq!(shape(image().push(Conv2d::new(8, (3, 2)).stride((2, 1)).padding((1, 0)))), "[8, 5, 6]");
    assert_eq!(shape(image().push(Conv2d::new(8, 3).dilation(2).groups(4).bias(false))), "[8, 5, 3]");
    assert_eq!(shape(image().push(MaxPool2d::new(3).stride(2).padding(1))), "[4, 5, 4]");
    assert_eq!(shape(image().avg_pool2d((3, 7))), "[4, 3, 1]");
    assert_eq!(shape(image().flatten()), "[252]");
    assert_eq!(shape(image().reshape([36, 7])), "[36, 7]");
    assert_eq!(shape(image().permute([1, 2, 0])), "[9, 7, 4]");
    let activations =
        image().relu().leaky_relu(0.1).sigmoid().tanh().gelu().push(Gelu::new().tanh(true)).silu().hard_swish();
    let activations = activations.relu6().hard_sigmoid().elu(0.5).softplus().prelu().push(Hardtanh::new(-2.0, 2.0));
    let activations =
        activations.push(Prelu::new().per_channel(true)).dropout(0.1).dropout2d(0.2).stochastic_depth(0.3);
    assert_eq!(shape(activations.softmax().log_softmax().push(Softmax::new(0))), "[4, 9, 7]");
    let sentences = || Sequential::new("m", Input::tokens([9])).embedding(100, 12);
    assert_eq!(shape(sentences()), "[9, 12]");
    assert_eq!(shape(sentences().positional_embedding(9).multihead_attention(3)), "[9, 12]");
}

#[test]
fn tensors_scale_their_channels() {
    let model = Model::new("m", [3, 4, 5], |x| {
        let means = x.global_avg_pool().layer("fc", Linear::new(3)).sigmoid();
        x.pad([(0, 0), (1, 1), (0, 0)]).mul_channels(means).adaptive_avg_pool2d(2)
    });
    assert_eq!(model.output_shape().expect("builds")[..], [3, 2, 2]);
}

#[test]
fn shape_errors_name_the_layer_and_what_it_found() {
    let image = || Sequential::new("m", [1, 8, 8]);
    assert_eq!(
        error(&image().conv2d(4, 3).relu().linear(10)),
        "layer `linear1`: expects a sample of shape [features] or [time, features], found [4, 6, 6]; put flatten before it"
    );
    assert!(error(&Sequential::new("m", [64]).conv2d(4, 3)).starts_with("layer `conv1`: expects a sample of shape"));
    assert!(error(&image().conv2d(4, 3).conv2d(4, 9)).starts_with("layer `conv2`: a window 9 high does not fit"));
    assert!(error(&image().push(Conv2d::new(4, 3).groups(2))).contains("groups = 2 must divide"));
    assert!(error(&image().push(Conv2d::new(4, 3).stride(0))).contains("stride must be at least 1, found 0"));
    assert!(error(&image().linear(0)).contains("out_features must be at least 1"));
    assert!(error(&image().push(MaxPool2d::new(2).padding(2))).contains("at most half the window"));
    assert!(error(&image().reshape([9])).contains("cannot take the shape [9]"));
    assert!(error(&image().permute([0, 0, 1])).contains("must name each of the 3 axes"));
    assert!(error(&image().push(Softmax::new(3))).contains("axis 3 does not exist"));
    assert!(error(&image().lstm(4)).contains("expects a sample of shape [time, features]"));
    assert!(error(&image().leaky_relu(f32::NAN)).contains("slope must be a number"));
    assert!(error(&image().dropout(1.5)).contains("p must be between 0 and 1, found 1.5"));
    assert!(error(&Sequential::new("m", [4]).dropout2d(0.5)).contains("expects a sample of shape [channels, …]"));
    assert!(error(&Sequential::new("m", [4]).embedding(5, 2)).contains("expects tokens, found f32[2, 4]"));
    assert!(error(&image().push(Embedding::new(5, 2).std(-1.0))).contains("std must be at least 0"));
    let sequence = || Sequential::new("m", [6, 10]);
    assert!(error(&sequence().positional_embedding(5)).contains("a sequence of 6 is longer than max_length = 5"));
    assert!(error(&sequence().multihead_attention(3)).contains("num_heads = 3 must divide the 10 features"));
    assert!(error(&image().multihead_attention(2)).contains("expects a sample of shape [time, features]"));
    assert!(error(&sequence().push(MultiheadAttention::new(2).dropout(-1.0))).contains("p must be between 0 and 1"));
    assert!(error(&Sequential::new("m", [0])).contains("every extent must be at least 1"));
}

#[test]
fn skips_join_what_was_remembered() {
    let image = || Sequential::new("m", [4, 8, 6]);
    let shape = |model: Sequential| model.output_shape().expect("builds").to_string();
    assert_eq!(shape(image().skip("a").conv2d(3, 1).concat("a")), "[7, 8, 6]");
    assert_eq!(
        shape(image().skip("a").max_pool2d(2).upsample(2).concat("a").skip("b").concat("b").concat("a")),
        "[20, 8, 6]"
    );
    assert_eq!(shape(image().skip("a").relu().add("a").add("a")), "[4, 8, 6]");
    assert_eq!(shape(image().upsample((2, 3))), "[4, 16, 18]");
    assert_eq!(shape(Sequential::new("m", [5]).skip("a").linear(3).concat("a")), "[8]");
    let built = image().skip("a").relu().concat("a").build(2).expect("builds");
    assert_eq!(built.graph.nodes().len(), 2, "a skip runs nothing");
    let concat = &built.graph.nodes()[1];
    assert_eq!(concat.inputs[1], built.input, "what was remembered comes second");
}

#[test]
fn skip_errors_say_which_name_and_shape() {
    let image = || Sequential::new("m", [4, 8, 8]);
    for (model, expected) in [
        (image().concat("a"), "layer `concat1`: unknown skip `a`: there is none; a skip stands before what uses it"),
        (
            image().skip("b").skip("a").add("c"),
            "layer `add1`: unknown skip `c`: choose one of a, b; a skip stands before what uses it",
        ),
        (
            image().skip("a").relu().skip("a").add("a"),
            "layer `skip2`: the name `a` is already that of layer `skip1`: choose another",
        ),
        (
            image().skip("a").relu().skip("b").add("b"),
            "layer `skip1`: no layer after it uses `a`: add a concat or add with it, or take the skip out",
        ),
        (
            image().skip("a").max_pool2d(2).concat("a"),
            "layer `concat1`: `a` is a sample of shape [4, 8, 8] and what comes in [4, 4, 4]: they must differ in the number of channels only",
        ),
        (
            image().skip("a").flatten().concat("a"),
            "layer `concat1`: `a` is a sample of shape [4, 8, 8] and what comes in [256]: they must differ in the number of channels only",
        ),
        (
            image().skip("a").conv2d(3, 1).add("a"),
            "layer `add1`: `a` is a sample of shape [4, 8, 8] and what comes in [3, 8, 8]: they must have one shape",
        ),
        (image().upsample(0), "layer `upsample1`: scale must be at least 1, found 0"),
        (
            image().flatten().upsample(2),
            "layer `upsample1`: expects a sample of shape [channels, height, width], found [256]",
        ),
    ] {
        assert_eq!(error(&model), expected);
    }
    assert!(error(&image().upsample(300)).contains("is not possible: an element is copied at most 32767 times"));
}

#[test]
fn a_convolution_starts_as_it_is_told() {
    let bounds =
        |model: &Sequential| model.build(1).expect("builds").parameters.iter().map(|p| p.init).collect::<Vec<_>>();
    let conv = || Conv2d::new(4, 3);
    let image = || Sequential::new("m", [6, 8, 8]);
    assert_eq!(bounds(&image().push(conv())), [Init::fan_in(54); 2]);
    let he = [Init::Uniform { bound: (6.0_f32 / 54.0).sqrt() }, Init::ZEROS];
    assert_eq!(bounds(&image().push(conv().init(Scheme::KaimingUniform))), he);
}

#[test]
fn sizes_that_overflow_are_refused() {
    assert!(error(&Sequential::new("m", [usize::MAX, 2])).contains("more than"));
    assert!(error(&Sequential::new("m", [8]).linear(usize::MAX)).contains("at most"));
    assert!(error(&Sequential::new("m", [1 << 20]).linear(1 << 20)).contains("more than"));
    assert!(error(&Sequential::new("m", [2, 2]).lstm(1 << 24)).contains("more than"));
    let huge = Conv2d::new(1 << 24, 1).padding(1 << 20);
    assert!(error(&Sequential::new("m", [1, 2, 2]).push(huge)).starts_with("layer `conv1`: "));
}

#[test]
fn summary_is_a_table() {
    let model = Sequential::new("tiny", [1, 4, 4]).conv2d(2, 3).relu().flatten().linear(1000);
    let expected = "\
tiny
  layer     output     parameters
  input     [1, 4, 4]
  conv1     [2, 2, 2]          20
  relu1     [2, 2, 2]
  flatten1  [8]
  linear1   [1000]          9,000
  total                     9,020
";
    assert_eq!(model.summary().expect("builds"), expected);
}

#[test]
fn a_model_survives_toml() {
    let model = Sequential::new("all", [2, 8, 8])
        .push(Conv2d::new(4, (3, 2)).stride(2).padding((1, 0)).bias(false).init(Scheme::KaimingUniform))
        .skip("a")
        .relu()
        .add("a")
        .push(
            BatchNorm::new().eps(1e-3).momentum(0.25).affine(false).track_running_stats(false).frozen(true).relu(true),
        )
        .push(GroupNorm::new(2).eps(1e-3))
        .push(InstanceNorm::new().affine(true))
        .push(LayerNorm::new().dims(2).bias(false))
        .push(RmsNorm::new().affine(false))
        .concat("a")
        .conv2d(4, 1)
        .upsample((2, 1))
        .max_pool2d((4, 2))
        .permute([1, 2, 0])
        .reshape([2, 8])
        .push(Lstm::new(3).return_sequences(true))
        .push(LeakyRelu::new(0.25))
        .push(Softmax::new(0))
        .push(Softplus::new(2.0, 10.0))
        .push(Prelu::new().per_channel(true))
        .relu6()
        .push(PositionalEmbedding::new(9).std(0.1))
        .push(MultiheadAttention::new(1).causal(true).dropout(0.25).bias(false))
        .dropout(0.5)
        .stochastic_depth(0.125)
        .flatten()
        .linear(2);
    let text = toml::to_string(&model).expect("serializes");
    assert_eq!(toml::from_str::<Sequential>(&text).expect("parses"), model, "{text}");
    let images = Sequential::new("images", [2, 8, 8])
        .push(Conv2d::new(4, 3).same_padding())
        .push(ConvTranspose2d::new(2, (3, 2)).stride(2).output_padding((1, 0)))
        .push(SqueezeExcite::new(2).silu().hard_sigmoid())
        .push(Pad::new([(0, 0), (1, 0), (0, 2)]).value(-0.5))
        .push(Upsample::to_size((9, 7)).bilinear().align_corners(true))
        .adaptive_avg_pool2d((4, 3))
        .reshape([4, 6])
        .push(Conv1d::new(3, 3).same_padding().dilation(2))
        .push(Conv1d::new(3, 3).padding(1))
        .global_avg_pool();
    let text = toml::to_string(&images).expect("serializes");
    assert_eq!(toml::from_str::<Sequential>(&text).expect("parses"), images, "{text}");
    let padded = Sequential::new("padded", [2, 4, 8, 8])
        .push(Conv3d::new(3, (2, 3, 3)).same_lower_padding())
        .push(MaxPool3d::new(2).pads(((0, 1), (1, 0), (0, 0))).ceil_mode(true))
        .push(AvgPool3d::new((1, 2, 2)).stride(1).count_include_pad(false))
        .reshape([3, 3, 9])
        .push(Conv2d::new(4, 2).pads(((0, 1), (1, 0))))
        .push(DepthwiseConv2d::new(3).depth_multiplier(2).same_upper_padding())
        .push(SeparableConv2d::new(4, 2).stride(2).pads(((1, 0), (0, 1))))
        .push(Pad::new([(0, 0), (1, 1), (0, 1)]).reflect())
        .push(Cropping::new([(0, 1), (0, 0), (1, 1)]))
        .rescaling(0.5, -1.0)
        .reshape([3, 16])
        .push(Conv1d::new(3, 2).pads((0, 1)))
        .push(ConvTranspose1d::new(2, 3).stride(2).same_upper_padding())
        .push(AvgPool1d::new(2).count_include_pad(false))
        .push(Upsample1d::to_size(20).linear())
        .adaptive_avg_pool1d(5)
        .push(Rnn::new(3).return_sequences(true))
        .push(RnnRelu::new(2));
    let text = toml::to_string(&padded).expect("serializes");
    assert_eq!(toml::from_str::<Sequential>(&text).expect("parses"), padded, "{text}");
}

#[test]
fn sequences_take_another_length_where_parameters_allow_it() {
    let lstm = models::mnist_lstm(10);
    let longer = lstm.with_length(500).expect("a longer one");
    assert_eq!(longer.input_shape()[..], [500, 28]);
    assert_eq!(longer.output_shape(), lstm.output_shape());
    assert!(lstm.with_length(0).is_none());
    assert!(models::mnist_mlp(10).with_length(5).is_none());
    assert!(models::mnist_cnn(10).with_length(5).is_none());
    let flat = Sequential::new("flat", [4, 3]).flatten().linear(2);
    assert!(Model::from(flat).with_length(5).is_none());
}

#[test]
fn functions_make_the_same_models_as_chains() {
    let chain = Sequential::new("m", [2, 6, 6]).conv2d(4, 3).relu().flatten().linear(3);
    let function = Model::new("m", [2, 6, 6], |x| {
        x.layer("conv1", Conv2d::new(4, 3)).relu().flatten().layer("linear1", Linear::new(3))
    });
    assert_eq!(names(&chain), names(&function));
    let hash = |model: Model| model.build(2, Mode::Evaluate).expect("builds").graph.nodes().len();
    assert_eq!(hash(chain.into()), hash(function));
}

#[test]
fn names_follow_what_layers_are_within() {
    let model = Model::new("m", [4], |x| {
        let x =
            x.within("a", |x| x.layer("1", Linear::new(4)).within("b", |x| x.layer("2", Linear::new(4).bias(false))));
        x.layer("3", Linear::new(1).bias(false)) + x.layer("4", Linear::new(1).bias(false))
    });
    assert_eq!(
        names(&model),
        ["a.1.weight [4, 4]", "a.1.bias [4]", "a.b.2.weight [4, 4]", "3.weight [1, 4]", "4.weight [1, 4]"]
    );
    let nodes = model.build(1, Mode::Evaluate).expect("builds").graph;
    assert!(
        nodes.nodes().iter().any(|node| node.name == "a.b.2") && nodes.nodes().iter().any(|node| node.name == "add")
    );
}

#[test]
fn the_first_error_of_a_function_is_kept() {
    let model = Model::new("m", [1, 6, 6], |x| {
        let y = x.layer("conv", Conv2d::new(4, 9)).relu();
        let y = y.layer("linear", Linear::new(0)) + x;
        let channels = y.channels() / y.extent(7);
        y.layer("last", Conv2d::new(channels, 1))
    });
    let error = model.build(2, Mode::Evaluate).expect_err("refused").to_string();
    assert!(error.contains("layer `conv`: a window 9 high does not fit"), "{error}");
    let twice = Model::new("m", [4], |x| x.layer("a", Linear::new(4)).layer("a", Linear::new(4)));
    let error = twice.build(1, Mode::Evaluate).expect_err("refused").to_string();
    assert!(error.contains("`a.weight` is taken"), "{error}");
}

#[test]
fn attention_is_named_and_started_as_in_pytorch() {
    let model =
        Sequential::new("m", Input::tokens([5])).push(Embedding::new(7, 4).padding_idx(2)).multihead_attention(2);
    assert_eq!(
        names(&model),
        [
            "embedding1.weight [7, 4]",
            "attention1.in_proj_weight [12, 4]",
            "attention1.in_proj_bias [12]",
            "attention1.out_proj.weight [4, 4]",
            "attention1.out_proj.bias [4]",
        ]
    );
    let inits: Vec<_> =
        model.build(1).expect("builds").parameters.into_iter().map(|parameter| parameter.init).collect();
    assert_eq!(
        inits,
        [
            Init::NormalRows { std: 1.0, columns: 4, zero: 2 },
            Init::Uniform { bound: (6.0_f32 / 16.0).sqrt() },
            Init::ZEROS,
            Init::Uniform { bound: 0.5 },
            Init::ZEROS,
        ]
    );
}

#[test]
fn dropouts_draw_in_training_only_and_each_its_own_numbers() {
    let model =
        Model::new("m", [4, 3, 3], |x| x.dropout(0.5).dropout(0.5).dropout2d(0.5).stochastic_depth(0.5).dropout(0.0));
    assert!(model.build(2, Mode::Evaluate).expect("builds").graph.nodes().is_empty());
    let graph = model.build(2, Mode::Train(Statistics::Exact)).expect("builds").graph;
    let run = graph.find(RUN).expect("there is an input for the run");
    let settings: Vec<_> = graph
        .nodes()
        .iter()
        .map(|node| {
            assert_eq!((node.op.name(), node.inputs[1]), ("dropout", run));
            format!("{:?}", node.op)
        })
        .collect();
    assert_eq!(settings.len(), 4, "p = 0 runs nothing");
    for (settings, block) in settings.iter().zip([1, 1, 9, 36]) {
        assert!(settings.contains(&format!("block: {block} ")), "{settings}");
    }
    assert_ne!(settings[0], settings[1], "two dropouts of one name have streams of their own");
}

#[test]
fn functions_cut_and_join() {
    let model = Model::new("m", [6, 4], |x| {
        let parts = x.split(1, &[1, 3, 2]);
        let joined = parts[2].concat(parts[0], 1).concat(x.slice(1, 0, 3), 1);
        joined.abs().sqrt().clamp(0.5, 2.0).log().exp().pow(2.0)
    });
    assert_eq!(model.output_shape().expect("builds")[..], [6, 4]);
    let wrong = Model::new("m", [6, 4], |x| x.split(1, &[1, 3])[1].relu());
    let error = wrong.build(1, Mode::Evaluate).expect_err("refused").to_string();
    assert!(error.contains("lengths = [1, 3] is not possible"), "{error}");
    let attention = Model::new("m", [2, 5, 4], |x| scaled_dot_product_attention(x, x, x.slice(3, 0, 3), true, 0.1));
    assert_eq!(attention.output_shape().expect("builds")[..], [2, 5, 3]);
    let wrong = Model::new("m", [2, 5, 4], |x| scaled_dot_product_attention(x, x.slice(3, 0, 3), x, false, 0.0));
    let error = wrong.build(1, Mode::Evaluate).expect_err("refused").to_string();
    assert!(error.contains("found [1, 2, 5, 4], [1, 2, 5, 3] and [1, 2, 5, 4]"), "{error}");
}
