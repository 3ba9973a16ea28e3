"""Writes small models of Keras with what they compute: <name>.keras, and <name>.json beside it.

    python generate.py            # all
    python generate.py lstm cnn   # some
    python generate.py check DIR  # loads what the tests wrote to DIR (TIGHTFIT_KERAS=DIR) and compares predictions

It needs keras (../requirements.txt) and jax==0.10.2, whose convolutions are those of TensorFlow. An entry of the JSON has the
inputs, the outputs, a target of the first output, and the gradients of the mean squared error of both by the arrays of each layer,
with Keras's axes.
"""

import json
import os
import sys
import zipfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import keras
import numpy as np
from keras import Input, Model, Sequential
from keras import layers as L

FOLDER = Path(__file__).parent
MODELS = {}
BATCH = 3


def model(function):
    MODELS[function.__name__] = function
    return function


@model
def mlp():
    m = Sequential([Input((4,)), L.Dense(5, activation="relu"), L.Dense(4, activation="tanh", use_bias=False), L.Dense(3, activation="softmax")])
    m.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy())
    return m


@model
def cnn():
    return Sequential([
        Input((9, 8, 3)),
        L.Conv2D(4, 4, strides=2, padding="same", activation="relu"),
        L.BatchNormalization(),
        L.MaxPooling2D(2, padding="same"),
        L.Conv2D(4, (2, 3), padding="same", groups=2),
        L.AveragePooling2D(2, strides=1, padding="same"),
        L.Flatten(),
        L.Dense(2),
    ])


@model
def pixels():
    inner = Sequential([Input((28, 28, 1)), L.Rescaling(1 / 255), L.Conv2D(4, 3, strides=2, activation="relu")], name="inner")
    m = Sequential([Input((28, 28, 1)), inner, L.GlobalAveragePooling2D(), L.Dense(10, activation="softmax")])
    m.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy())
    return m


@model
def transfer():
    base = Sequential([Input((6, 6, 2)), L.Conv2D(3, 3, use_bias=False), L.BatchNormalization(), L.ReLU()], name="base")
    base.trainable = False
    return Sequential([Input((6, 6, 2)), base, L.GlobalAveragePooling2D(), L.Dense(2)])


@model
def separable():
    return Sequential([
        Input((6, 7, 3)),
        L.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="relu"),
        L.SeparableConv2D(4, 2, depth_multiplier=2, strides=2),
        L.GlobalAveragePooling2D(keepdims=True),
        L.Conv2D(2, 1),
        L.Reshape((2,)),
    ])


@model
def transposed():
    return Sequential([
        Input((3, 4, 2)),
        L.Conv2DTranspose(3, 3, strides=2, padding="same", activation="relu"),
        L.Conv2DTranspose(2, 2, strides=3, padding="valid"),
        L.Conv2DTranspose(2, 4, strides=2, padding="same", output_padding=1, use_bias=False),
        L.AveragePooling2D(4),
    ])


@model
def sequence_conv():
    return Sequential([
        Input((10,), dtype="int32"),
        L.Embedding(7, 4),
        L.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="relu"),
        L.SeparableConv1D(5, 3, padding="same"),
        L.DepthwiseConv1D(2, depth_multiplier=2),
        L.MaxPooling1D(2, padding="same"),
        L.UpSampling1D(2),
        L.ZeroPadding1D((1, 2)),
        L.Cropping1D((2, 1)),
        L.Conv1DTranspose(3, 3, strides=2, padding="same"),
        L.AveragePooling1D(3),
        L.GlobalMaxPooling1D(),
        L.Dense(2),
    ])


@model
def lstm():
    return Sequential([Input((5, 3)), L.LSTM(4, return_sequences=True), L.LSTM(3, go_backwards=True, use_bias=False), L.Dense(2)])


@model
def gru():
    return Sequential([Input((5, 3)), L.GRU(4, return_sequences=True, go_backwards=True), L.GRU(3, return_sequences=True)])


@model
def simple_rnn():
    return Sequential([Input((4, 3)), L.SimpleRNN(4, return_sequences=True, activation="relu"), L.SimpleRNN(3)])


@model
def bidirectional():
    return Sequential([
        Input((4, 3)),
        L.Bidirectional(L.LSTM(2, return_sequences=True)),
        L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode="sum"),
        L.TimeDistributed(L.Dense(3, activation="relu")),
        L.BatchNormalization(),
        L.Bidirectional(L.SimpleRNN(2), merge_mode="ave"),
    ])


@model
def attention():
    x, memory = Input((4, 6), name="x"), Input((5, 3), name="memory")
    y = L.LayerNormalization()(x + L.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True))
    # Without dropout, Keras 3.15 on jax wants values as large as keys.
    y = L.MultiHeadAttention(2, 2, value_dim=3, output_shape=5, use_bias=False, dropout=0.1)(query=y, value=memory)
    return Model([x, memory], L.GlobalAveragePooling1D()(y))


@model
def merges():
    a, b = Input((4, 4, 3), name="a"), Input((4, 4, 3), name="b")
    p, q = L.Conv2D(3, 3, padding="same")(a), L.Conv2D(3, 1)(b)
    y = L.Concatenate()([L.Add()([p, q, a]), L.Subtract()([p, q]), L.Multiply()([p, q])])
    z = L.Concatenate(axis=1)([L.Average()([p, q, b]), L.Maximum()([p, q]), L.Minimum()([p, q])])
    u, v = L.GlobalAveragePooling2D()(y), L.Flatten()(z)
    u, v = L.Dense(6)(u), L.Dense(6)(v)
    m = L.Dot((2, 1))([L.Reshape((3, 2))(u), L.Reshape((2, 3))(v)])
    return Model([a, b], L.Concatenate()([L.Flatten()(m), L.Dot(-1, normalize=True)([u, v])]))


@model
def shapes():
    x = Input((4, 5, 2))
    y = L.Conv2D(2, 1)(x)
    y = L.ZeroPadding2D(((1, 0), (2, 1)))(y)
    y = L.Cropping2D(((0, 1), (1, 1)))(y)
    y = L.UpSampling2D(2)(y)
    y = L.UpSampling2D((1, 2), interpolation="bilinear")(y)
    y = L.MaxPooling2D((2, 4))(y)
    y = L.Permute((3, 1, 2))(y)
    y = L.Reshape((-1, 4))(y)
    y = L.Flatten()(L.Conv1D(3, 2)(y))
    return Model(x, L.LSTM(2)(L.RepeatVector(3)(L.Dense(3)(y))))


@model
def activations():
    x = Input((3, 4))
    y = L.Dense(5)(x)
    names = ["relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "silu", "mish", "sigmoid", "log_sigmoid", "hard_sigmoid",
             "hard_silu", "hard_tanh", "tanh", "tanh_shrink", "softplus", "softsign", "exponential", "softmax", "log_softmax", "linear"]
    made = [L.Activation(name)(y) for name in names]
    made += [L.ReLU(max_value=0.5, negative_slope=0.1, threshold=0.1)(y), L.LeakyReLU(0.2)(y), L.ELU(0.5)(y), L.Softmax(axis=1)(y)]
    made += [L.Dense(5, activation=L.LeakyReLU(0.3))(y), L.PReLU()(y), L.PReLU(shared_axes=[1])(y)]
    return Model(x, L.Dense(2)(L.Concatenate()(made)))


@model
def norms():
    x = Input((4, 4, 6))
    y = L.Conv2D(6, 3)(x)
    y = L.BatchNormalization(scale=False, momentum=0.9, epsilon=0.01)(y)
    y = L.GroupNormalization(3)(y)
    y = L.BatchNormalization(center=False)(y)
    y = L.GroupNormalization(2, scale=False)(y)
    y = L.LayerNormalization(center=False)(y)
    y = L.LayerNormalization(axis=[2, 3], scale=False)(y)
    y = L.Flatten()(y)
    return Model(x, L.Dense(3)(L.Concatenate()([L.RMSNormalization()(y), L.UnitNormalization()(y), L.GroupNormalization(-1)(y)])))


@model
def shared():
    a, b = Input((5, 5, 2), name="a"), Input((5, 5, 2), name="b")
    inner_input = Input((5, 5, 2))
    inner = Model(inner_input, L.Flatten()(L.Conv2D(2, 3, activation="relu")(inner_input)), name="tower")
    dense = L.Dense(4, name="embed")
    p, q = dense(inner(a)), dense(inner(b))
    return Model([a, b], L.Dense(2)(L.Subtract()([p, q])))


@model
def nested():
    deepest = Sequential([Input((4, 4, 2)), L.Conv2D(3, 2), L.BatchNormalization()], name="deepest")
    i, j = Input((4, 4, 2), name="i"), Input((3,), name="j")
    y = L.GlobalMaxPooling2D()(deepest(i))
    middle = Model([i, j], [L.Dense(3)(y), L.Add()([y, j])], name="middle")
    x, w = Input((4, 4, 2), name="x"), Input((3,), name="w")
    p, q = middle([x, w])
    frozen = L.Dense(3, name="frozen", trainable=False)
    return Model([x, w], L.Dense(2)(L.Concatenate()([frozen(q), p])))


@model
def several():
    image, tokens = Input((4, 4, 2), name="image"), Input((3,), dtype="int32", name="tokens")
    y = L.Flatten()(L.Conv2D(2, 3)(image))
    z = L.GRU(3)(L.Embedding(6, 2)(tokens))
    both = L.Concatenate()([y, z])
    first = L.Dense(2, activation="sigmoid", name="first")(both)
    m = Model([image, tokens], [first, L.Dense(3, name="second")(both), L.Conv2D(2, 1, name="third")(image)])
    m.compile(keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), {"first": "binary_crossentropy", "second": "mse", "third": "mse"})
    return m


@model
def preprocessing():
    x, w = Input((4, 4, 3), name="x"), Input((3,), name="w")
    adapted = L.Normalization()
    adapted.adapt(np.random.default_rng(1).normal(2.0, 3.0, (20, 4, 4, 3)).astype("float32"))
    y = L.Conv2D(2, 3)(adapted(L.Rescaling(1 / 2, offset=-0.5)(x)))
    z = L.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 0.5])(w)
    z = L.Normalization(axis=None, mean=0.5, variance=4.0)(z)
    z = L.Normalization(mean=[0.5, 0.0, 0.2], variance=[2.0, 4.0, 0.5], invert=True)(z)
    return Model([x, w], L.Dense(2)(L.Concatenate()([L.Flatten()(y), z])))


@model
def channels_first():
    kw = dict(data_format="channels_first")
    return Sequential([
        Input((2, 5, 6)),
        L.Conv2D(3, 3, padding="same", **kw),
        L.BatchNormalization(axis=1),
        L.MaxPooling2D(2, **kw),
        L.SpatialDropout2D(0.5, **kw),
        L.Flatten(**kw),
        L.Dense(2),
    ])


@model
def volume():
    return Sequential([Input((4, 5, 4, 2)), L.Conv3D(3, 2, padding="same", activation="relu"), L.MaxPooling3D(2), L.GlobalAveragePooling3D(), L.Dense(2)])


@model
def frames():
    return Sequential([
        Input((3, 4, 4, 2)),
        L.TimeDistributed(L.Conv2D(2, 3, activation="relu")),
        L.TimeDistributed(L.Flatten()),
        L.LSTM(3),
    ])


@model
def dropouts():
    return Sequential([
        Input((4, 4, 2)),
        L.Conv2D(3, 2),
        L.SpatialDropout2D(0.3),
        L.Reshape((9, 3)),
        L.SpatialDropout1D(0.3),
        L.LSTM(3, dropout=0.2, return_sequences=True),
        L.Dropout(0.5),
        L.Flatten(),
        L.Dense(2),
    ])


@model
def numbers():
    x = Input((4,))
    y = 2.0 * L.Dense(3)(x) + 1.0
    y = (1.0 - y) / 4.0 - 0.5
    return Model(x, L.Dense(2)(y * y))


# Those whose training is random are compared as if evaluating.
RANDOM = {"attention", "dropouts", "channels_first"}
# As Keras 2 has files, and weights alone of a second model of the same layers.
OLDER = ["mlp", "cnn", "nested", "bidirectional", "attention"]
ALONE = ["cnn", "nested", "lstm", "attention"]


def leaves(model, path=()):
    for layer in model.layers:
        if isinstance(layer, (Model, Sequential)):
            yield from leaves(layer, (*path, layer.name))
        elif layer.weights:
            yield "/".join((*path, layer.name)), layer


def array(values):
    values = np.asarray(values)
    return {"shape": list(values.shape), "values": [float(f"{v:.7g}") for v in values.astype("float64").ravel()]}


def tensors(inputs):
    return inputs if isinstance(inputs, list) else [inputs]


def draw_inputs(m, rng):
    drawn = []
    for tensor in m.inputs:
        shape = (BATCH, *tensor.shape[1:])
        ints = tensor.dtype.startswith("int")
        drawn.append(rng.integers(0, 6, shape).astype("int32") if ints else rng.normal(size=shape).astype("float32").round(4))
    return drawn


def randomize(m, rng):
    for _, layer in leaves(m):
        for v in layer.weights:
            if v.dtype != "float32" or isinstance(layer, L.Normalization):
                continue
            values = 0.5 * rng.normal(size=v.shape)
            if "variance" in v.path or "gamma" in v.path:
                values = 0.5 + rng.random(size=v.shape)
            v.assign(values.astype("float32").round(4))


def generate(name):
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(sum(map(ord, name)))
    m = MODELS[name]()
    randomize(m, rng)
    inputs = draw_inputs(m, rng)
    outputs = [np.asarray(o) for o in tensors(m(inputs if len(inputs) > 1 else inputs[0], training=False))]
    names = getattr(m, "output_names", [m.layers[-1].name])
    target = rng.normal(size=outputs[0].shape).astype("float32").round(4)
    trainable = [v.value for v in m.trainable_variables]
    others = [v.value for v in m.non_trainable_variables]

    def loss(trainable):
        made, _ = m.stateless_call(trainable, others, inputs if len(inputs) > 1 else inputs[0], training=name not in RANDOM)
        return ((tensors(made)[0] - target) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(trainable)
    by_variable = {id(v): g for v, g in zip(m.trainable_variables, gradients)}
    entry = {
        "inputs": [{"name": t.name, "tokens": t.dtype.startswith("int"), **array(i)} for t, i in zip(m.inputs, inputs)],
        "outputs": [{"name": n, **array(o)} for n, o in zip(names, outputs)],
        "target": array(target),
        "loss": float(value),
        "gradients": {
            path: [array(by_variable[id(v)]) if id(v) in by_variable else None for v in layer.weights] for path, layer in leaves(m)
        },
        "weights": {path: [array(v.value) for v in layer.weights] for path, layer in leaves(m)} if name in ("mlp", "lstm", "gru") else {},
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(entry, separators=(",", ":")) + "\n")
    m.save(FOLDER / f"{name}.keras")
    if name not in OLDER:
        pack(FOLDER / f"{name}.keras")
    if name in OLDER:
        m.save(FOLDER / f"{name}.h5")
    if name in ALONE:
        values = m.get_weights()
        second = MODELS[name]()
        second.set_weights(values)
        second.save_weights(FOLDER / f"{name}.weights.h5")


def pack(path):
    """Keras packs nothing, and most of a small file of HDF5 is empty."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in members.items():
            archive.writestr(zipfile.ZipInfo(name), contents, zipfile.ZIP_DEFLATED)


def check(folder):
    for path in sorted(Path(folder).glob("*.prediction.json")):
        name = path.name.removesuffix(".prediction.json")
        golden = json.loads((FOLDER / f"{name}.json").read_text())
        expected = json.loads(path.read_text())
        inputs = [np.array(i["values"], "int32" if i["tokens"] else "float32").reshape(i["shape"]) for i in golden["inputs"]]
        inputs = inputs if len(inputs) > 1 else inputs[0]
        whole = keras.saving.load_model(Path(folder) / f"{name}.keras")
        alone = MODELS[name]()
        alone.load_weights(Path(folder) / f"{name}.weights.h5")
        for what, m in {"keras": whole, "weights": alone}.items():
            made = np.asarray(tensors(m(inputs, training=False))[0]).ravel()
            worst = np.abs(made - np.array(expected)).max() / max(np.abs(made).max(), 1e-3)
            print(f"{name} {what}: {worst:.1e}")
            assert worst < 1e-4, name


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        for name in sys.argv[1:] or MODELS:
            print(name, flush=True)
            generate(name)
