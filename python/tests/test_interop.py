"""Models of other frameworks, from the files that the library's own tests have (tests/golden)."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tightfit as tf_

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
CNN = GOLDEN / "keras" / "cnn.keras"


def array(described):
    return np.array(described["values"], np.float32).reshape(described["shape"])


def expected(framework, name):
    found = json.loads((GOLDEN / framework / f"{name}.json").read_text())
    inputs = [array(given) for given in found.get("inputs") or [found["input"]]]
    return inputs if len(inputs) > 1 else inputs[0], array((found.get("outputs") or [found["output"]])[0])


class Weight:
    """A variable of a model that stands in for one of Keras."""

    def __init__(self, values):
        self.values = values

    @property
    def shape(self):
        return self.values.shape

    def numpy(self):
        return self.values

    def assign(self, values):
        self.values = np.array(values)


class Layer:
    def __init__(self, name, shapes):
        random = np.random.default_rng(len(name))
        self.name, self.weights = name, [Weight(random.random(shape, np.float32) - 0.5) for shape in shapes]


class Dense:
    """What `from_keras` asks of a model of Keras: two dense layers."""

    built = True

    def __init__(self):
        self.layers = [Layer("first", [(4, 8), (8,)]), Layer("second", [(8, 3), (3,)])]

    def to_json(self):
        def dense(name, units, activation):
            config = {"name": name, "units": units, "activation": activation, "use_bias": True}
            return {"module": "keras.layers", "class_name": "Dense", "config": config}

        inputs = {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 4], "name": "features"}}
        layers = [inputs, dense("first", 8, "relu"), dense("second", 3, "softmax")]
        compiled = {
            "optimizer": {"module": "keras.optimizers", "class_name": "SGD", "config": {"learning_rate": 0.5}},
            "loss": "sparse_categorical_crossentropy",
        }
        config = {"name": "two", "layers": layers}
        return json.dumps({"module": "keras", "class_name": "Sequential", "config": config, "compile_config": compiled})

    def predict(self, x):
        (a, b), (c, d) = [[weight.values for weight in layer.weights] for layer in self.layers]
        logits = np.maximum(x @ a + b, 0) @ c + d
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        return exponentials / exponentials.sum(1, keepdims=True)


def test_a_live_model_of_keras_trains_and_gets_its_weights_back(points, device):
    theirs = Dense()
    model = tf_.Model.from_keras(theirs)
    assert model.predict(points[0]) == pytest.approx(theirs.predict(points[0]), abs=1e-6)
    # Loss and optimizer are those that it was compiled with.
    model.compile(device=device, metrics=["accuracy"])
    assert model.optimizer.learning_rate == 0.5
    history = model.fit(*points, batch_size=16, epochs=20, verbose=0)
    assert history.history["loss"][-1] < 0.7 * history.history["loss"][0]
    assert model.predict(points[0]) != pytest.approx(theirs.predict(points[0]), abs=1e-2)
    model.to_keras(theirs)
    assert model.predict(points[0]) == pytest.approx(theirs.predict(points[0]), abs=1e-5)


def test_inputs_and_targets_have_the_names_of_keras(points, device):
    model, (x, y) = tf_.Model.from_keras(Dense()), points
    assert np.array_equal(model.predict({"features": x}), model.predict(x))
    assert np.array_equal(model.predict({"input": x}), model.predict(x))
    model.compile(loss={"second": "sparse_categorical_crossentropy"}, device=device)
    assert len(model.fit({"features": x}, {"second": y}, epochs=2, verbose=0).epoch) == 2
    with pytest.raises(ValueError, match="the model has input"):
        model.predict({"first": x})


def test_weights_go_to_a_model_of_the_same_layers_alone(points):
    model, other = tf_.Model.from_keras(Dense()), Dense()
    # Layers of other names are taken in order.
    again = Dense()
    for layer in again.layers:
        layer.name += "_1"
    model.to_keras(again)
    assert np.array_equal(again.layers[1].weights[0].values, model.get_weights()["second.weight"].T)
    other.layers[1] = Layer("second", [(8, 4), (4,)])
    before = other.layers[0].weights[0].values.copy()
    with pytest.raises(ValueError, match="second"):
        model.to_keras(other)
    assert np.array_equal(other.layers[0].weights[0].values, before)
    with pytest.raises(TypeError, match="no model of Keras"):
        tf_.Model.from_keras(object())
    with pytest.raises(ValueError, match="not one of Keras"):
        tf_.Model.builtin("mnist-mlp").to_keras(other)


@pytest.mark.parametrize("name", ["cnn", "norms", "lstm", "shared"])
def test_files_of_keras_predict_as_keras_does(name):
    model = tf_.Model.from_keras_file(GOLDEN / "keras" / f"{name}.keras")
    x, y = expected("keras", name)
    assert model.predict(x) == pytest.approx(y, rel=1e-4, abs=1e-5)


def test_files_of_keras_go_round(tmp_path):
    model = tf_.Model.from_keras_file(CNN)
    x, y = expected("keras", "cnn")
    assert model.input_shape == x.shape[1:]
    whole, weights = tmp_path / "trained.keras", tmp_path / "trained.weights.h5"
    model.save_weights(whole)
    model.save_weights(weights)
    with zipfile.ZipFile(CNN) as before, zipfile.ZipFile(whole) as after:
        assert json.loads(before.read("config.json")) == json.loads(after.read("config.json"))
    assert tf_.Model.from_keras_file(whole).predict(x) == pytest.approx(y, rel=1e-4, abs=1e-5)
    changed = tf_.Model.from_keras_file(CNN)
    changed.set_weights({name: np.zeros_like(values) for name, values in changed.get_weights().items()})
    assert changed.predict(x) != pytest.approx(y, rel=1e-4, abs=1e-5)
    changed.load_weights(weights)
    assert np.array_equal(changed.predict(x), model.predict(x))


@pytest.mark.parametrize("name", ["cnn", "lstm", "attention"])
def test_models_in_onnx_predict_as_in_pytorch(name, tmp_path):
    model = tf_.Model.from_onnx(GOLDEN / "onnx" / f"{name}.torchscript.onnx")
    x, y = expected("onnx", name)
    assert model.predict(x) == pytest.approx(y, rel=1e-4, abs=1e-5)
    model.export(tmp_path / "again.onnx")
    assert tf_.Model.from_onnx(tmp_path / "again.onnx").predict(x) == pytest.approx(y, rel=1e-4, abs=1e-5)
    with pytest.raises(ValueError, match="onnx"):
        model.export(tmp_path / "model", format="tf_saved_model")
    (tmp_path / "notes.md").write_text("mine")
    for write in (model.export, model.save_weights, model.save):
        with pytest.raises(ValueError, match="end its name in"):
            write(tmp_path / "notes.md")
    assert (tmp_path / "notes.md").read_text() == "mine"
    with pytest.raises(ValueError, match="opset"):
        model.export(tmp_path / "model.onnx", opset=3)


def test_a_built_in_model_takes_weights_of_files(tmp_path, device):
    x = np.random.default_rng(2).random((4, 784), np.float32)
    model = tf_.Model.builtin("mnist-mlp")
    model.save_weights(tmp_path / "digits.safetensors")
    again = tf_.Model.from_safetensors(tmp_path / "digits.safetensors", "mnist-mlp")
    assert np.array_equal(again.predict(x), model.predict(x))
    # A head for other classes keeps its own weights.
    other = tf_.Model.builtin("mnist-mlp", outputs=4)
    with pytest.raises(ValueError, match="linear3.weight"):
        other.load_weights(tmp_path / "digits.safetensors")
    left = other.load_weights(tmp_path / "digits.safetensors", matching=True)
    names = set(model.get_weights())
    assert 0 < len(left) < len(names) and set(left) < names
    kept = next(iter(names - set(left)))
    assert np.array_equal(other.get_weights()[kept], model.get_weights()[kept])


def test_a_state_dict_is_read_without_pytorch():
    path, model = GOLDEN / "torch" / "state.pt", tf_.Model.builtin("mnist-mlp")
    expected = json.loads((GOLDEN / "torch" / "state.json").read_text())
    tensors = dict(tf_._tightfit.read_tensors(str(path)))
    assert tensors.keys() == expected.keys()
    assert all(values == pytest.approx(array(expected[name])) for name, values in tensors.items())
    # It is of another model.
    for matching in (False, True):
        with pytest.raises(ValueError, match="mnist-mlp|state.pt"):
            model.load_weights(path, matching=matching)


@pytest.mark.parametrize("cut", [0, 10, 2000])
def test_damaged_files_are_refused_in_a_sentence(cut, tmp_path):
    for source, read in [(CNN, tf_.Model.from_keras_file), (GOLDEN / "onnx" / "cnn.torchscript.onnx", tf_.Model.from_onnx)]:
        path = tmp_path / source.name
        path.write_bytes(source.read_bytes()[:cut])
        with pytest.raises(ValueError, match=source.name):
            read(path)
    with pytest.raises(FileNotFoundError):
        tf_.Model.from_onnx(tmp_path / "none.onnx")
