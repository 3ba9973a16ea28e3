"""Models."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence

import numpy as np

from . import _interop, _settings, _tightfit
from ._feed import Feed
from ._fitting import Fitting
from ._plan import Plan
from .callbacks import History

# What built-in models are trained with, where it is not cross-entropy of one class a sample or pixel.
_LOSSES: dict[str, Any] = {
    "lstm_forecaster": {"kind": "mse"},
    "mlp": {"kind": "mse"},
    "char_lstm": {"kind": "cross-entropy", "classes_last": True},
    "gpt": {"kind": "cross-entropy", "classes_last": True},
}


class OptimizerHandle:
    """The optimizer of a compiled model, for callbacks: ``model.optimizer.learning_rate`` can be read and set."""

    def __init__(self, model: "Model") -> None:
        self._model = model

    @property
    def learning_rate(self) -> float:
        """Of the next step, without what a schedule multiplies it by."""
        return self._model._rate()

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        self._model._set_rate(float(rate))

    lr = learning_rate

    @property
    def iterations(self) -> int:
        """Steps so far."""
        trainer = self._model._trainer
        return 0 if trainer is None or self._model._evaluates else trainer.steps()


class Model(Fitting):
    """A model that can be planned and trained. Make one with `builtin`, `sequential`, `from_toml` or the other class methods.

    >>> import numpy as np, tightfit as tf_
    >>> model = tf_.Model.sequential([{"kind": "linear", "out_features": 16}, {"kind": "relu"}, {"kind": "linear", "out_features": 2}], input_shape=[4])
    >>> model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"], budget="1MiB", device="cpu")
    >>> x = np.random.rand(64, 4).astype("float32"); y = (x.sum(1) > 2).astype("int64")
    >>> history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    >>> sorted(history.history)
    ['accuracy', 'learning_rate', 'loss']
    """

    def __init__(self, network: Any, *, raw_pixels: bool = False, input_last: bool = False, output_last: bool = False) -> None:
        self._network = network
        self._orders = {"raw_pixels": raw_pixels, "input_last": input_last, "output_last": output_last}
        self._defaults: dict[str, Any] = {}
        self._settings: dict[str, Any] | None = None
        self._device: str | None = None
        self._trainer: Any = None
        self._evaluates = False
        self._weights: dict[str, np.ndarray] | None = None
        self._learning_rate: float | None = None
        self._is_fitting = False
        self.stop_training = False
        self.history: History | None = None

    def __reduce__(self) -> Any:
        raise TypeError("a model cannot be pickled or copied: save_weights writes its weights, and load_weights reads them into another")

    # How models are made.

    @classmethod
    def builtin(cls, name: str, input_shape: Sequence[int] | None = None, outputs: int | None = None) -> "Model":
        """A built-in model, such as ``"resnet50"``: `models` lists them. `outputs` is the number of classes, or of what it predicts.

        Images are ``[channels, height, width]``. Arrays of bytes (uint8) are taken as pixels, from 0 to 1.
        """
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is no name of a model: tightfit.models() lists them")
        if outputs is not None:
            outputs = _settings.count("outputs", outputs, least=1, most=_MOST)
        model = cls(_tightfit.Network.builtin(name, None if input_shape is None else _shape(input_shape), outputs))
        model._defaults = {"loss": _LOSSES.get(name, {"kind": "cross-entropy"})}
        return model

    @classmethod
    def sequential(
        cls, layers: Sequence[Mapping[str, Any]], input_shape: Sequence[int], *, tokens: bool = False, name: str = "model"
    ) -> "Model":
        """Layers one after the other, each a dict with its ``kind`` and settings, as in model files: docs/model-files.md lists them.
        With `tokens` the model takes indices, such as words of a vocabulary."""
        for number, layer in enumerate(layers):
            if not isinstance(layer, Mapping):
                raise TypeError(f"layer {number + 1} is {layer!r}: give a dict, such as {{'kind': 'relu'}}")
        texts = [_settings.dumped(layer) for layer in layers]
        return cls(_tightfit.Network.sequential(name, _shape(input_shape), bool(tokens), texts))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> "Model":
        """A model from a file, with the loss and the optimizer that it names: see docs/model-files.md."""
        import tomllib

        with open(path, "rb") as file:
            try:
                found = tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ValueError(f"{os.fspath(path)}: {error}") from None
        known = {"name", "input", "tokens", "layers", "loss", "optimizer", "groups"}
        unknown = [key for key in found if key not in known]
        missing = [key for key in ("name", "input", "layers") if key not in found]
        if unknown or missing:
            what = f"unknown key `{unknown[0]}`" if unknown else f"missing key `{missing[0]}`"
            raise ValueError(f"{os.fspath(path)}: {what}")
        try:
            model = cls.sequential(found["layers"], found["input"], tokens=found.get("tokens", False), name=found["name"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None
        model._defaults = {key: found[key] for key in ("loss", "optimizer", "groups") if key in found}
        return model

    @classmethod
    def from_keras(cls, model: Any) -> "Model":
        """A model of Keras, with its weights and what it was compiled with. Images are ``[height, width, channels]``, as Keras has them, and
        bytes are numbers from 0 to 255. Keras is not imported: any object with ``to_json`` and ``layers`` will do."""
        network, weights = _interop.from_keras(model)
        return cls._imported(network, weights)

    @classmethod
    def from_keras_file(cls, path: str | os.PathLike[str]) -> "Model":
        """A model from a ``.keras`` or an ``.h5`` that has the model too. As `from_keras`."""
        return cls._imported(_tightfit.read_keras(_settings.path(path)))

    @classmethod
    def from_onnx(cls, path: str | os.PathLike[str], input_shape: Sequence[int] | None = None) -> "Model":
        """A model in ONNX, with its weights: docs/onnx.md lists the operators. `input_shape` is that of one sample, where the file leaves more of it
        free than the batch."""
        return cls._imported(_tightfit.read_onnx(_settings.path(path), None if input_shape is None else _shape(input_shape)))

    @classmethod
    def from_safetensors(
        cls, path: str | os.PathLike[str], name: str, input_shape: Sequence[int] | None = None, outputs: int | None = None
    ) -> "Model":
        """The built-in model `name` with weights from a file of safetensors or PyTorch, which holds no network: as `builtin`, then
        `load_weights`."""
        model = cls.builtin(name, input_shape, outputs)
        model._weights = dict(_tightfit.read_weights(model._network, _settings.path(path)))
        return model

    @classmethod
    def _imported(cls, network: Any, weights: dict[str, np.ndarray] | None = None) -> "Model":
        input_last, output_last = network.orders()
        # Elsewhere, bytes are numbers.
        model = cls(network, raw_pixels=True, input_last=input_last, output_last=output_last)
        found = network.take_weights()
        model._weights = weights if found is None else dict(found)
        loss, optimizer = network.compiled()
        model._defaults = {key: json.loads(text) for key, text in (("loss", loss), ("optimizer", optimizer)) if text is not None}
        model._defaults["freeze"] = network.frozen()
        return model

    def to_keras(self, model: Any) -> None:
        """Puts the weights into a model of Keras, that which this one was made from or one of the same layers."""
        _interop.to_keras(self._network, self.get_weights(), model)

    # What there is to know.

    @property
    def name(self) -> str:
        return self._network.name

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample, as arrays have it."""
        shape = tuple(self._network.inputs()[0][2])
        return (*shape[1:], shape[0]) if self._orders["input_last"] and len(shape) > 2 else shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the last layer, for one sample."""
        shape = tuple(self._network.outputs()[0][2])
        return (*shape[1:], shape[0]) if self._orders["output_last"] and len(shape) > 2 else shape

    def count_params(self) -> int:
        """How many numbers are trained."""
        return self._network.count_params()

    def summary(self, print_fn: Any = print) -> None:
        """Prints the layers and, of a compiled model, what training them takes."""
        print_fn(self._network.summary(None if self._settings is None else _settings.dumped(self._settings)))

    @property
    def optimizer(self) -> OptimizerHandle:
        self._compiled()
        return OptimizerHandle(self)

    @property
    def measured_peak_bytes(self) -> int:
        """The most bytes that were on the device at once so far."""
        return 0 if self._trainer is None else self._trainer.measured_peak_bytes()

    @property
    def device_name(self) -> str | None:
        """What trains; ``None`` until something does."""
        return None if self._trainer is None else self._trainer.device_name()

    @property
    def plan(self) -> Plan | None:
        """The plan that training follows; ``None`` until there is one. `tightfit.plan` makes one in advance."""
        return None if self._trainer is None or self._evaluates else Plan(**self._trainer.plan())

    def __repr__(self) -> str:
        return f"<tightfit.Model {self.name}: {self.input_shape} to {self.output_shape}, {self.count_params():,} parameters>"

    # How it is trained.

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        *,
        loss_weights: Any = None,
        budget: str | int | None = None,
        device: str | int | None = None,
        precision: str | None = None,
        micro_batches: int | None = None,
        schedule: Any = None,
        seed: int = 0,
        clip_norm: float | None = None,
        **others: Any,
    ) -> None:
        """Says how to train.

        `optimizer`, `loss` and `metrics` are names (``"adam"``, ``"sparse_categorical_crossentropy"``, ``"cross-entropy"``), dicts with settings
        (``{"kind": "adamw", "lr": 3e-4}``) or objects of Keras. `budget` is the most that may be on the device, such as ``"8GiB"``, or
        ``"auto"`` for what is free; `device` an index or a name from `devices`, or ``"cpu"``; `precision` ``"f32"``, ``"f16"`` or ``"bf16"``.
        `schedule` changes the learning rate from step to step (``"cosine"``, or a dict: docs/training.md).
        """
        if self._is_fitting:
            raise RuntimeError("compile in the middle of a fit is not possible: compile before it")
        defaults = self._defaults
        own = {"groups": defaults["groups"]} if "groups" in defaults else {}
        # What Keras does not train is not trained here, unless something else is asked for.
        if defaults.get("freeze") and not {"freeze", "train_only"} & others.keys():
            own["freeze"] = defaults["freeze"]
        loss = loss if loss is not None else defaults.get("loss")
        if loss is None:
            raise ValueError("loss is missing, such as loss='sparse_categorical_crossentropy'")
        settings = _settings.settings(
            self._network,
            loss=loss,
            optimizer=optimizer if optimizer is not None else defaults.get("optimizer", "adam"),
            metrics=metrics,
            loss_weights=loss_weights,
            budget=budget,
            precision=precision,
            micro_batches=micro_batches,
            schedule=schedule,
            seed=seed,
            clip_norm=clip_norm,
            others={**own, **others},
        )
        # What is wrong with them is said now.
        for warning in self._network.warnings(_settings.dumped(settings)):
            import warnings

            warnings.warn(warning, stacklevel=2)
        self._release()
        self._settings, self._learning_rate = settings, None
        self._device = None if device is None or device == "auto" else str(device)

    # Weights.

    def get_weights(self) -> dict[str, np.ndarray]:
        """All parameters and buffers by name, copied."""
        if self._trainer is None and self._weights is not None:
            return {name: values.copy() for name, values in self._weights.items()}
        return dict(self._any_trainer().weights())

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Overwrites parameters and buffers by name: those that are given, all of them or none."""
        if not isinstance(weights, Mapping):
            raise TypeError("set_weights takes a dict of arrays by name, as get_weights gives it")
        arrays = [(str(name), _numbers(name, value)) for name, value in weights.items()]
        self._any_trainer().set_weights(arrays)

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Writes a model of Keras with its weights to a ``.keras`` that Keras loads. Of other models, see `save_weights` and `export`."""
        path = _ends(filepath, ".keras")
        if not overwrite and os.path.exists(path):
            raise FileExistsError(f"{path} is there already")
        _tightfit.write_keras(self._network, path, list(self.get_weights().items()))

    def save_weights(self, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Writes parameters and buffers to a ``.safetensors``, with the names of PyTorch's ``state_dict``; of a model of Keras also to a
        ``.weights.h5``, or with the model to a ``.keras``."""
        path = _ends(filepath, ".safetensors", ".weights.h5", ".keras")
        if not overwrite and os.path.exists(path):
            raise FileExistsError(f"{path} is there already")
        if path.endswith(".safetensors"):
            self._any_trainer().save(path)
        else:
            _tightfit.write_keras(self._network, path, list(self.get_weights().items()))

    def load_weights(self, filepath: str | os.PathLike[str], *, matching: bool = False) -> list[str]:
        """Reads parameters and buffers from a file of safetensors, PyTorch (``.pt``, ``.pth``), Keras or ONNX. With `matching`, of a file of
        safetensors or PyTorch, what fits by name and shape: returns the names of what was left as it was."""
        path = _settings.path(filepath)
        if not matching:
            self.set_weights(dict(_tightfit.read_weights(self._network, path)))
            return []
        found, shapes = dict(_tightfit.read_tensors(path)), dict(self._network.weight_shapes())
        fitting = {name: found[name] for name in shapes if name in found and list(found[name].shape) == shapes[name]}
        if not fitting:
            raise ValueError(f"{path}: no tensor fits a weight of {self.name} by name and shape")
        self.set_weights(fitting)
        return [name for name in shapes if name not in fitting]

    def export(self, filepath: str | os.PathLike[str], format: str = "onnx", *, opset: int = 17, fold_batch_norm: bool = False) -> None:
        """Writes the model with its weights for inference elsewhere. With `fold_batch_norm`, batch norms behind convolutions become part of
        their weights."""
        if format != "onnx":
            raise ValueError(f"format {format!r} is not there: choose 'onnx'")
        _tightfit.write_onnx(self._network, _ends(filepath, ".onnx"), list(self.get_weights().items()), opset, fold_batch_norm)

    # How trainers come and go.

    def _compiled(self) -> None:
        if self._settings is None:
            raise RuntimeError("the model is not compiled: call compile(optimizer=…, loss=…) first")

    def _feed(self) -> Feed:
        return Feed(self._network, self._settings, **self._orders)

    def _mixes(self) -> bool:
        return self._network.mixes_samples(self._settings.get("statistics"))

    def _training(self, batch: int, *, drop_last: bool, weighted: bool) -> Any:
        """A trainer of this batch: the one that there is, planned anew, or a new one."""
        self._settings.update(batch=batch, drop_last=drop_last, sample_weights=weighted)
        if self._trainer is not None and not self._evaluates:
            self._trainer.reconfigure(batch, drop_last, weighted)
            return self._trainer
        self._release()
        return self._begin(self._settings, evaluates=False)

    def _any_trainer(self) -> Any:
        """The trainer that there is, or one that evaluates alone."""
        if self._trainer is not None:
            return self._trainer
        settings = self._settings
        if settings is None:
            # Nothing is trained: what the loss is does not matter.
            settings = {"loss": {"kind": "mse"}}
        return self._begin({"batch": 32, **settings}, evaluates=True)

    def _begin(self, settings: Mapping[str, Any], *, evaluates: bool) -> Any:
        trainer = _tightfit.Trainer(self._network, _settings.dumped(settings), self._device, evaluates)
        if self._weights is not None:
            trainer.set_weights(list(self._weights.items()))
        if self._learning_rate is not None and not evaluates:
            trainer.set_lr(self._learning_rate)
        self._weights = None
        self._trainer, self._evaluates = trainer, evaluates
        return trainer

    def _release(self) -> None:
        """Frees the trainer. Its weights stay, for the next."""
        if self._trainer is None:
            return
        self._weights = dict(self._trainer.weights())
        self._trainer.close()
        self._trainer = None

    def _rate(self) -> float:
        if self._trainer is not None and not self._evaluates:
            return self._trainer.lr()
        return self._settings["optimizer"]["lr"] if self._learning_rate is None else self._learning_rate

    def _set_rate(self, rate: float) -> None:
        if not (np.isfinite(rate) and rate >= 0):
            raise ValueError(f"a learning rate of {rate} is not possible: it must be 0 or more")
        self._learning_rate = rate
        if self._trainer is not None and not self._evaluates:
            self._trainer.set_lr(rate)


def _numbers(name: Any, value: Any) -> np.ndarray:
    """Weights as floats, finite where they were."""
    found = np.asarray(value)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` is an array of {found.dtype}: give one of numbers, such as float32")
    with np.errstate(over="ignore"):
        numbers = found.astype(np.float32)
    if not np.array_equal(np.isfinite(numbers), np.isfinite(found)):
        raise ValueError(f"`{name}` has a number that is too large for float32")
    return numbers


def _ends(filepath: str | os.PathLike[str], *endings: str) -> str:
    """A path with one of these endings: anything else would be overwritten by what nobody expects there."""
    path = _settings.path(filepath)
    if not path.endswith(endings):
        raise ValueError(f"{path}: end its name in {' or '.join(endings)}, which say what is written")
    return path


# An extent at most: what is larger fits no memory.
_MOST = 2**31 - 1


def _shape(shape: Any) -> list[int]:
    try:
        given = list(shape) if not isinstance(shape, (int, str, bytes)) else [shape]
    except TypeError:
        raise ValueError(f"the shape {shape!r} is not one: give whole numbers, without the batch") from None
    if not given:
        raise ValueError("the shape has no extents: give those of a sample, without the batch")
    return [_settings.count("an extent of the shape", extent, least=1, most=_MOST) for extent in given]
