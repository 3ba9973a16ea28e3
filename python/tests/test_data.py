import numpy as np
import pytest

import tightfit as tf_


def losses(model, *data, **options):
    return model.fit(*data, epochs=2, shuffle=False, verbose=0, **options).history["loss"]


@pytest.mark.parametrize("dtype", ["f8", "f2", ">f4", ">f8", "g"])
def test_floats_of_any_kind(mlp, points, dtype):
    x, y = points
    x = x.astype("f2").astype("f4")
    assert losses(mlp(), x.astype(dtype), y) == losses(mlp(), x, y)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "i4", "u4", "u8", "f4", "f8", ">i4"])
def test_labels_of_any_kind(mlp, points, dtype):
    x, y = points
    assert losses(mlp(), x, y.astype(dtype)) == losses(mlp(), x, y)
    assert losses(mlp(), x, y[:, None].astype(dtype)) == losses(mlp(), x, y)


def test_views_of_any_order(mlp, points):
    x, y = points
    expected = losses(mlp(), x, y)
    wide = np.zeros((96, 8), np.float32)
    wide[:, ::2] = x
    unaligned = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    views = [np.asfortranarray(x), wide[:, ::2], x[::-1][::-1], np.flip(np.flip(x, 1).copy(), 1), unaligned, read_only, x.tolist()]
    for view in views:
        assert losses(mlp(), view, y) == expected


def test_arrays_are_not_kept(mlp, points):
    import weakref

    class Owned(np.ndarray):
        pass

    x = points[0].copy().view(Owned)
    gone = weakref.ref(x)
    model = mlp()
    model.fit(x, points[1], verbose=0)
    del x
    assert gone() is None


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        (np.array([["a"] * 4] * 8), None, TypeError),
        (np.array([[None] * 4] * 8, object), None, TypeError),
        (np.zeros((8, 4), complex), None, TypeError),
        (np.ma.zeros((8, 4)), None, TypeError),
        ([[1.0, 2.0], [3.0]], None, ValueError),
        (np.zeros((0, 4)), np.zeros(0), ValueError),
        (np.zeros((8, 0)), None, ValueError),
        (np.zeros((8, 5)), None, ValueError),
        (np.zeros((8, 4, 1)), None, ValueError),
        (np.float32(3), None, ValueError),
        (np.zeros((8, 4)), np.zeros(7), ValueError),
        (np.zeros((8, 4)), np.full(8, 3), ValueError),
        (np.zeros((8, 4)), np.full(8, -1), ValueError),
        (np.zeros((8, 4)), np.full(8, 0.5), ValueError),
        (np.zeros((8, 4)), np.full(8, np.nan), ValueError),
        (np.zeros((8, 4)), np.full(8, 2**40), ValueError),
        (np.zeros((8, 4)), np.zeros((8, 3)), ValueError),
        (np.full((8, 4), np.nan), None, FloatingPointError),
        (np.full((8, 4), np.inf), None, FloatingPointError),
        (None, None, ValueError),
        ("file.csv", None, (TypeError, ValueError)),
    ],
)
def test_bad_data(mlp, points, x, y, error):
    model = mlp()
    with pytest.raises(error) as raised:
        model.fit(x, np.zeros(8, int) if y is None else y, batch_size=4, verbose=0)
    assert "Panic" not in type(raised.value).__name__ and len(str(raised.value)) > 10
    # It is as it was.
    assert np.isfinite(losses(model, *points)).all()


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": -1},
        {"epochs": 1.5},
        {"batch_size": 0},
        {"validation_split": 1.0},
        {"validation_split": 0.999},
        {"validation_data": (np.zeros((3, 4)),)},
        {"validation_data": (np.zeros((3, 5)), np.zeros(3))},
        {"steps_per_epoch": 0},
        {"verbose": 7},
    ],
)
def test_bad_options(mlp, points, options):
    with pytest.raises(ValueError):
        mlp().fit(*points, **{"verbose": 0, **options})


def test_not_compiled(points):
    model = tf_.Model.builtin("mnist-mlp")
    for call in (lambda: model.fit(*points), lambda: model.evaluate(*points), lambda: model.optimizer):
        with pytest.raises(RuntimeError, match="not compiled"):
            call()
    with pytest.raises(ValueError, match="loss"):
        tf_.Model.sequential([{"kind": "relu"}], [4]).compile()


@pytest.mark.parametrize(
    ("layers", "shape", "error"),
    [
        ([{"kind": "relux"}], [4], ValueError),
        ([{"out_features": 3}], [4], ValueError),
        ([{"kind": "linear"}], [4], ValueError),
        ([{"kind": "linear", "out_features": -3}], [4], ValueError),
        ([{"kind": "conv2d", "out_channels": 3, "kernel": 9}], [1, 4, 4], ValueError),
        ([{"kind": "relu"}], [], ValueError),
        ([{"kind": "relu"}], [0], ValueError),
        ([{"kind": "relu"}], ["a"], ValueError),
        ([{"kind": "relu"}], [2**62, 2**62], ValueError),
        (["relu"], [4], TypeError),
    ],
)
def test_bad_models(layers, shape, error):
    with pytest.raises(error):
        tf_.Model.sequential(layers, shape)


def test_generators_train_as_arrays_do(mlp, points):
    x, y = points
    expected = losses(mlp(), x, y, batch_size=32)
    parts = [(x[i : i + 32], y[i : i + 32]) for i in (0, 32, 64)]

    class Places:
        """As Keras's PyDataset: it has no end of its own."""

        ends = 0

        def __len__(self):
            return 3

        def __getitem__(self, i):
            return parts[i % 3]

        def on_epoch_end(self):
            self.ends += 1

    class Loader:
        """As PyTorch's DataLoader: lists, and begun anew for each epoch."""

        def __iter__(self):
            return iter([list(part) for part in parts])

    def endless():
        while True:
            yield from parts

    places = Places()
    for data, options in ((iter(parts * 2), {"steps_per_epoch": 3}), (endless(), {"steps_per_epoch": 3}), (places, {}), (Loader(), {})):
        model = mlp()
        history = model.fit(data, epochs=2, verbose=0, validation_data=Loader(), **options)
        assert history.history["loss"] == pytest.approx(expected, rel=1e-6)
        assert model.optimizer.iterations == 6
        whole = model.evaluate(x, y, return_dict=True)
        assert history.history["val_loss"][-1] == pytest.approx(whole["loss"], rel=1e-5)
        assert np.array_equal(model.predict(Loader()), model.predict(x))
    assert places.ends == 2


def test_generators_with_weights_and_short_batches(mlp, points):
    x, y = points
    model = mlp()
    model.fit(((x[i : i + 20], y[i : i + 20], np.ones(len(x[i : i + 20]))) for i in range(0, 96, 20)), epochs=1, verbose=0)
    assert model.optimizer.iterations == 5
    with pytest.raises(ValueError, match="larger"):
        model.fit([(x[:4], y[:4]), (x[:8], y[:8])], verbose=0)


def test_generators_that_end(mlp, points):
    x, y = points
    model = mlp()
    for options, words in (({"epochs": 2}, "begun anew"), ({"epochs": 1, "steps_per_epoch": 5}, "ended after 3 of 5")):
        with pytest.raises(ValueError, match=words):
            model.fit(((x[:8], y[:8]) for _ in range(3)), verbose=0, **options)
    with pytest.raises(ValueError, match="no batches"):
        model.fit(iter([]), verbose=0)
    with pytest.raises(ValueError, match="a batch must be"):
        model.fit(iter([x]), verbose=0)
    with pytest.raises(ValueError, match="leave"):
        model.fit(iter([(x, y)]), y, verbose=0)

    def fails():
        yield x[:8], y[:8]
        raise KeyError("of its own")

    with pytest.raises(KeyError, match="of its own"):
        model.fit(fails(), verbose=0)
    assert np.isfinite(losses(model, x, y)).all()


def test_steps_per_epoch_of_arrays(mlp, points):
    model = mlp()
    history = model.fit(*points, batch_size=16, epochs=3, steps_per_epoch=4, verbose=0)
    assert model.optimizer.iterations == 12 and len(history.epoch) == 3


def test_names_of_keras(mlp, device):
    from tightfit import _names

    class SparseCategoricalCrossentropy:
        def get_config(self):
            return {"name": "x", "reduction": "sum_over_batch_size", "from_logits": True, "ignore_class": 2}

    class AdamW:
        def get_config(self):
            return {
                "name": "adamw", "learning_rate": 0.01, "weight_decay": 0.004, "clipnorm": None, "global_clipnorm": 1.0, "clipvalue": None,
                "use_ema": False, "ema_momentum": 0.99, "ema_overwrite_frequency": None, "loss_scale_factor": None,
                "gradient_accumulation_steps": None, "beta_1": 0.9, "beta_2": 0.95, "epsilon": 1e-7, "amsgrad": False,
            }  # fmt: skip

    class TopKCategoricalAccuracy:
        def get_config(self):
            return {"name": "top_k", "dtype": "float32", "k": 3}

    assert _names.loss(SparseCategoricalCrossentropy(), ends_in="softmax", output_rank=1) == {
        "kind": "cross-entropy", "from_logits": True, "ignore_index": 2,
    }  # fmt: skip
    optimizer, besides = _names.optimizer(AdamW())
    assert optimizer == {"kind": "adamw", "lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-7, "weight_decay": 0.004}
    assert besides == {"clip": {"norm": 1.0}}
    assert _names.metrics([TopKCategoricalAccuracy(), "acc", "RootMeanSquaredError"]) == [
        {"kind": "top-k", "k": 3}, {"kind": "accuracy"}, {"kind": "rmse"},
    ]  # fmt: skip
    for given in ("binary_crossentropy", "BinaryCrossentropy"):
        assert _names.loss(given, ends_in="sigmoid", output_rank=1) == {"kind": "bce"}
        assert _names.loss(given, ends_in=None, output_rank=1) == {"kind": "bce-with-logits"}
    assert _names.loss("sparse_categorical_crossentropy", ends_in=None, output_rank=2)["classes_last"]
    for bad in ("hinge", 7, {"lr": 3}, None):
        with pytest.raises(ValueError):
            _names.loss(bad, ends_in=None, output_rank=1)
    with pytest.raises(ValueError, match="amsgrad"):
        _names.optimizer({"kind": "adam", "amsgrad": True})
    mlp(optimizer=AdamW(), loss=SparseCategoricalCrossentropy(), metrics=[TopKCategoricalAccuracy()])
