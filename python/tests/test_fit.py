import copy
import os
import signal
import threading
import time

import numpy as np
import pytest

import tightfit as tf_


def test_a_model_learns(mlp, points):
    model = mlp(metrics=["accuracy", {"kind": "f1"}])
    history = model.fit(*points, batch_size=16, epochs=30, verbose=0, validation_split=0.25)
    losses = history.history["loss"]
    assert losses[-1] < 0.5 * losses[0] and history.epoch == list(range(30))
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "val_f1", "learning_rate"} <= set(history.history)
    found = model.evaluate(*points, return_dict=True)
    assert found["accuracy"] > 0.8
    assert model.evaluate(*points) == list(found.values())
    logits = model.predict(points[0])
    assert logits.shape == (96, 3) and logits.dtype == np.float32
    assert np.mean(logits.argmax(1) == points[1]) == pytest.approx(found["accuracy"])
    assert np.array_equal(model.predict_on_batch(points[0][:5]), logits[:5])


def test_the_same_seed_gives_the_same_numbers(mlp, points):
    runs = [mlp().fit(*points, batch_size=16, epochs=3, verbose=0).history["loss"] for _ in range(2)]
    assert runs[0] == runs[1] != mlp(seed=4).fit(*points, batch_size=16, epochs=3, verbose=0).history["loss"]


def test_budgets_are_kept_and_change_nothing(mlp, points):
    free = mlp()
    losses = free.fit(*points, batch_size=32, epochs=2, verbose=0).history["loss"]
    least = free.plan.minimum_budget_bytes
    tight = mlp(budget=least)
    assert tight.fit(*points, batch_size=32, epochs=2, verbose=0).history["loss"] == pytest.approx(losses, rel=1e-4)
    assert tight.measured_peak_bytes == tight.plan.peak_bytes <= least < free.plan.peak_bytes
    with pytest.raises(tf_.InfeasibleError):
        mlp(budget=1000).fit(*points, batch_size=32, epochs=1, verbose=0)


def test_weights_go_round(mlp, points, tmp_path):
    model, path = mlp(), tmp_path / "weights.safetensors"
    model.fit(*points, batch_size=32, epochs=2, verbose=0)
    weights, expected = model.get_weights(), model.predict(points[0])
    assert {name: values.shape for name, values in weights.items()} == {
        "linear1.weight": (16, 4), "linear1.bias": (16,), "linear2.weight": (3, 16), "linear2.bias": (3,),
    }  # fmt: skip
    model.save_weights(path)
    other, third = mlp(seed=9), mlp(seed=8)
    assert not np.array_equal(other.predict(points[0]), expected)
    other.load_weights(path)
    third.set_weights(weights)
    assert np.array_equal(other.predict(points[0]), expected) and np.array_equal(third.predict(points[0]), expected)
    # What was loaded is what training goes on from.
    losses = [m.fit(*points, batch_size=32, epochs=1, shuffle=False, verbose=0).history["loss"] for m in (other, third)]
    assert losses[0] == losses[1]


def test_weights_that_do_not_fit_change_nothing(mlp, points, tmp_path):
    model = mlp()
    before = model.get_weights()
    with pytest.raises(ValueError, match="linear9"):
        model.set_weights({**before, "linear9.bias": np.zeros(3)})
    with pytest.raises(ValueError, match="shape"):
        model.set_weights({"linear1.bias": np.ones(16), "linear1.weight": np.zeros((4, 16))})
    with pytest.raises(FileNotFoundError):
        model.load_weights(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no weights at all")
    with pytest.raises(ValueError):
        model.load_weights(tmp_path / "bad.safetensors")
    with pytest.raises(OSError):
        model.save_weights(tmp_path / "no" / "such" / "folder.safetensors")
    assert all(np.array_equal(values, before[name]) for name, values in model.get_weights().items())


def test_compiling_anew_keeps_weights(mlp, points):
    model = mlp()
    model.fit(*points, batch_size=32, epochs=1, verbose=0)
    before = model.predict(points[0])
    model.compile(optimizer="sgd", loss="cross-entropy", device="cpu")
    assert np.array_equal(model.predict(points[0]), before)


def test_batches_that_do_not_divide(mlp, points):
    """The last one is trained on, too; a batch may be larger than the data."""
    x, y = points
    model = mlp()
    model.fit(x[:50], y[:50], batch_size=16, epochs=1, verbose=0)
    assert model.optimizer.iterations == 4
    model.fit(x[:5], y[:5], batch_size=64, epochs=1, verbose=0)
    assert model.optimizer.iterations == 5


def test_batch_norm_leaves_a_short_batch_out(device, points):
    layers = [{"kind": "linear", "out_features": 8}, {"kind": "batch_norm"}, {"kind": "linear", "out_features": 3}]
    model = tf_.Model.sequential(layers, input_shape=[4])
    model.compile(loss="cross-entropy", device=device)
    model.fit(points[0][:50], points[1][:50], batch_size=16, epochs=1, verbose=0)
    assert model.optimizer.iterations == 3


def test_shuffle_and_order(mlp, points):
    x, y = points
    in_order = mlp().fit(x, y, batch_size=32, epochs=1, shuffle=False, verbose=0).history["loss"]
    model = mlp()
    parts = [model.train_on_batch(x[i : i + 32], y[i : i + 32]) for i in (0, 32, 64)]
    assert in_order == pytest.approx([np.mean([part[0] for part in parts])])
    assert mlp().fit(x, y, batch_size=32, epochs=1, verbose=0).history["loss"] != in_order


def test_weights_of_samples_and_classes(mlp, points):
    x, y = points
    only = mlp(optimizer="sgd")
    only.fit(x, y, batch_size=96, epochs=1, class_weight={0: 1.0, 1: 0.0, 2: 0.0}, shuffle=False, verbose=0)
    same = mlp(optimizer="sgd")
    same.fit(x, y, batch_size=96, epochs=1, sample_weight=(y == 0).astype("f"), shuffle=False, verbose=0)
    plain = mlp(optimizer="sgd")
    plain.fit(x, y, batch_size=96, epochs=1, shuffle=False, verbose=0)
    weights = [model.get_weights()["linear2.bias"] for model in (only, same, plain)]
    assert np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[0], weights[2])
    for bad in ({0: -1.0}, {0: float("nan")}):
        with pytest.raises(ValueError):
            plain.fit(x, y, class_weight=bad, verbose=0)
    with pytest.raises(ValueError):
        plain.fit(x, y, sample_weight=np.ones(3), verbose=0)


def test_one_hot_targets(mlp, points):
    x, y = points
    hot = mlp(loss="categorical_crossentropy").fit(x, np.eye(3)[y], batch_size=32, epochs=2, verbose=0)
    labels = mlp().fit(x, y, batch_size=32, epochs=2, verbose=0)
    assert hot.history["loss"] == pytest.approx(labels.history["loss"], rel=1e-5)


def test_probabilities_and_logits_are_told_apart(device, points):
    x, y = points
    def first_loss(layers, loss):
        model = tf_.Model.sequential(layers, input_shape=[4])
        model.compile(loss=loss, device=device, optimizer="sgd", seed=3)
        return model.fit(x, y, batch_size=96, epochs=1, verbose=0).history["loss"][0]

    layers = [{"kind": "linear", "out_features": 3}]
    logits = first_loss(layers, "sparse_categorical_crossentropy")
    assert first_loss([*layers, {"kind": "softmax"}], "SparseCategoricalCrossentropy") == pytest.approx(logits, rel=1e-4)


def test_numbers_of_one_column(device):
    x = np.linspace(-1, 1, 64)
    model = tf_.Model.sequential([{"kind": "linear", "out_features": 1}], input_shape=[1])
    model.compile(loss="mean_squared_error", optimizer={"kind": "sgd", "learning_rate": 0.3}, metrics=["mae"], device=device)
    history = model.fit(x, 2 * x + 1, batch_size=16, epochs=40, verbose=0, validation_data=(x, 2 * x + 1))
    assert history.history["val_mae"][-1] < 0.02
    assert model.get_weights()["linear1.weight"][0, 0] == pytest.approx(2, abs=0.05)


def test_memory_does_not_grow(mlp, points):
    resource = pytest.importorskip("resource")
    model = mlp()
    x, y = (np.tile(points[0], (20, 1)), np.tile(points[1], 20))
    model.fit(x, y, batch_size=32, epochs=10, verbose=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(x, y, batch_size=32, epochs=40, verbose=0)
    # In KiB. A leak of a batch a step would be 1.5 MiB, of the data an epoch 1.2 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024


def test_several_inputs_are_by_name(device):
    model = tf_.Model.builtin("mnist-mlp")
    with pytest.raises(ValueError, match="the model has input"):
        model.predict({"other": np.zeros((2, 784))})
    assert np.array_equal(model.predict({"input": np.zeros((2, 784))}), model.predict([np.zeros((2, 784))]))


def test_binary_classifiers_have_an_accuracy(device, points):
    model = tf_.Model.sequential([{"kind": "linear", "out_features": 1}, {"kind": "sigmoid"}], input_shape=[4])
    model.compile(optimizer={"kind": "adam", "lr": 0.1}, loss="binary_crossentropy", metrics=["accuracy"], device=device)
    x, y = points[0], (points[0][:, 0] > points[0][:, 1]).astype(np.float32)
    # The last batch is not full.
    history = model.fit(x, y, batch_size=36, epochs=40, validation_data=(x, y), verbose=0).history
    assert history["accuracy"][-1] > 0.9 and abs(history["accuracy"][-1] - history["val_accuracy"][-1]) < 0.1


def test_settings_and_errors_have_the_names_of_arguments(device):
    with pytest.raises(ValueError, match="threads=1000000000 is not possible"):
        tf_.Model.builtin("mnist-mlp").compile(device=device, threads=10**9)
    for wrong in (0, -1, 2.5, True, "x", None):
        if wrong is not None:
            with pytest.raises(ValueError, match=f"threads={wrong!r} is not"):
                tf_.Model.builtin("mnist-mlp").compile(device=device, threads=wrong)
        with pytest.raises((ValueError, TypeError), match="shape"):
            tf_.Model.builtin("mnist-cnn", input_shape=(1, 28, wrong))
        with pytest.raises((ValueError, TypeError), match="path|end its name"):
            tf_.Model.builtin("mnist-mlp").save_weights(wrong)
    with pytest.raises(ValueError, match="outputs=18446744073709551616 is not possible: give a whole number, from 1 to"):
        tf_.Model.builtin("mnist-mlp", outputs=2**64)
    with pytest.raises(ValueError, match='statistics="ghost"') as raised:
        tf_.plan("resnet18_cifar", batch=8, micro_batches=2)
    assert "--" not in str(raised.value)


def test_weights_are_numbers_and_models_are_not_pickled(mlp):
    model = mlp()
    name, values = next(iter(model.get_weights().items()))
    with pytest.raises(ValueError, match="too large for float32"):
        model.set_weights({name: np.full(values.shape, 1e300)})
    with pytest.raises(TypeError, match="complex64"):
        model.set_weights({name: values * 1j})
    with pytest.raises(TypeError, match="save_weights"):
        copy.deepcopy(model)


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("task", ["predict", "evaluate"])
def test_ctrl_c_ends_predictions_and_evaluations(device, task):
    model = tf_.Model.builtin("mnist-cnn")
    model.compile(device=device)
    # A minute's work, of which nobody waits for the end.
    x, y = np.broadcast_to(np.zeros(1, np.uint8), (100_000, 1, 28, 28)), np.zeros(100_000, np.int64)
    model.predict(x[:2])
    thread = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    thread.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        model.predict(x) if task == "predict" else model.evaluate(x, y)
    assert time.monotonic() - start < 15
    thread.join()
    assert model.predict(x[:2]).shape == (2, 10)


def test_bytes_are_pixels_and_a_missing_channel_is_found(device):
    model = tf_.Model.builtin("mnist-cnn")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    expected = model.predict((pixels[:, None] / 255.0).astype(np.float32))
    assert model.predict(pixels) == pytest.approx(expected, abs=1e-5)


def test_model_files(tmp_path, points, device):
    path = tmp_path / "model.toml"
    text = 'name = "three"\ninput = [4]\nloss = "cross-entropy"\n[optimizer]\nkind = "sgd"\nlr = 0.5\n[[layers]]\nkind = "linear"\nout_features = 3\n'
    path.write_text(text)
    model = tf_.Model.from_toml(path)
    model.compile(device=device)
    assert model.name == "three" and model.optimizer.learning_rate == 0.5
    model.fit(*points, verbose=0)
    path.write_text(text.replace("linear", "linea"))
    with pytest.raises(ValueError, match="layer 1"):
        tf_.Model.from_toml(path)
    path.write_text("name = ")
    with pytest.raises(ValueError, match="model.toml"):
        tf_.Model.from_toml(path)


def test_what_is_printed(mlp, points, capsys):
    model = mlp()
    model.summary()
    assert "linear1" in capsys.readouterr().out
    model.fit(*points, batch_size=32, epochs=2, verbose=1)
    shown = capsys.readouterr().out
    assert "Epoch 2/2" in shown and "3/3 [====================]" in shown and "loss: " in shown and "\r" in shown
    model.fit(*points, batch_size=32, epochs=2, verbose=2)
    assert "\r" not in capsys.readouterr().out
    model.fit(*points, batch_size=32, epochs=2, verbose=0)
    assert capsys.readouterr().out == ""
    assert "131 parameters" in repr(model)


@pytest.mark.parametrize(
    ("error", "words", "settings"),
    [
        (ValueError, "batch_size=inf", {"batch_size": float("inf")}),
        (TypeError, "no callback", {"callbacks": [3]}),
        (TypeError, "no callback", {"callbacks": [None]}),
        (TypeError, "validation_data=5", {"validation_data": 5}),
        (TypeError, "class_weight=", {"class_weight": {"a": 1}}),
        (ValueError, "gave 'a' for epoch 0", {"callbacks": [tf_.callbacks.LearningRateScheduler(lambda epoch: "a")]}),
    ],
)
def test_what_cannot_be_fitted_with_is_named(mlp, points, error, words, settings):
    with pytest.raises(error, match=words):
        mlp().fit(*points, verbose=0, **settings)


def test_settings_that_are_not_finite_are_named(mlp):
    with pytest.raises(ValueError, match="optimizer"):
        mlp(optimizer={"kind": "adam", "lr": float("nan")})
    with pytest.raises(ValueError, match="outputs=-1"):
        tf_.Model.builtin("mnist-mlp", outputs=-1)
    with pytest.raises(TypeError, match="dict"):
        mlp().set_weights([np.zeros(3)])
