"""From what users give to what a trainer is fed."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from . import _data, _settings
from ._data import Entry


class Feed:
    """Knows a model's inputs and targets."""

    def __init__(self, network: Any, settings: Mapping[str, Any] | None, *, raw_pixels: bool, input_last: bool, output_last: bool) -> None:
        self._inputs = network.inputs()
        self._outputs = {name: tuple(shape) for name, _, shape in network.outputs()}
        self._first_input, self._first_output = network.keras_names()
        self._raw_pixels, self._input_last, self._output_last = raw_pixels, input_last, output_last
        self._losses: dict[str, tuple[str, Mapping[str, Any]]] = {}
        if settings is not None:
            first = next(iter(self._outputs))
            self._losses[first] = ("target", settings["loss"])
            for head in settings["heads"]:
                self._losses[head["output"]] = (head["target"], head["loss"])

    @property
    def count(self) -> int:
        """How many inputs the model has."""
        return len(self._inputs)

    def inputs(self, x: Any) -> list[Entry]:
        """Entries of what the model takes."""
        given = _data.by_name("x", x, [name for name, _, _ in self._inputs], self._first_input)
        entries: list[Entry] = []
        for name, dtype, shape in self._inputs:
            if given.get(name) is None:
                raise ValueError(f"x: the model's input `{name}` is missing")
            values = _data.array(name, given[name])
            axes = None
            rank = len(shape)
            turns = self._input_last and rank > 2
            seen = (*shape[1:], shape[0]) if turns else tuple(shape)
            if values.ndim == rank and rank == 1 and seen == (1,):
                values = values[:, None]
            elif values.ndim == rank and rank > 1 and (seen[-1] if turns else seen[0]) == 1:
                # Images of one channel, without it.
                values = values[..., None] if turns else values[:, None]
            if values.shape[1:] != seen:
                raise ValueError(
                    f"x: `{name}` has samples of shape {values.shape[1:]}, the model takes {seen}"
                    + ("" if values.ndim == rank + 1 else ", after an axis of samples")
                )
            if turns:
                axes = _data.channels_first(rank)
            if dtype == "f32" and values.dtype == np.uint8 and not self._raw_pixels:
                dtype = "u8"
            entries.append((name, values, dtype, axes))
        self._check_count(entries)
        return entries

    def all(self, x: Any, y: Any, sample_weight: Any = None, class_weight: Mapping[int, float] | None = None, *, weighted: bool = False) -> list[Entry]:
        """Entries of inputs, targets and weights. With `weighted` there are weights in any case."""
        entries = self.inputs(x)
        if y is None:
            raise ValueError("y is missing: the loss needs targets")
        given = _data.by_name("y", y, list(self._losses), self._first_output)
        labels = None
        for output, (name, loss) in self._losses.items():
            if given.get(output) is None:
                raise ValueError(f"y: the targets of `{output}` are missing")
            entry = self._target(output, name, loss, _data.array("y" if name == "target" else output, given[output]))
            entries.append(entry)
            if name == "target" and class_weight is not None:
                labels = self._labels(entry)
        count = len(entries[0][1])
        weights = _data.weights(sample_weight, class_weight, labels, count)
        if weights is None and weighted:
            weights = np.ones(count, np.float32)
        if weights is not None:
            entries.append(("sample_weight", weights, "f32", None))
        self._check_count(entries)
        return entries

    def _target(self, output: str, name: str, loss: Mapping[str, Any], values: np.ndarray) -> Entry:
        shape = self._outputs[output]
        turns = self._output_last and len(shape) > 2
        if _settings.takes_labels(loss):
            expected = shape[:-1] if loss.get("classes_last") else shape[1:]
            if values.ndim == len(expected) + 2 and values.shape[-1] == 1:
                values = values[..., 0]
            if values.ndim == len(expected) + 2 and values.shape[-1] == (shape[-1] if loss.get("classes_last") else shape[0]):
                raise ValueError(
                    f"y has the shape {values.shape}, as one-hot targets do, and the loss {loss['kind']} takes integer labels: "
                    "use categorical_crossentropy, or give y.argmax(-1)"
                )
            return name, values, "u32", None
        seen = (*shape[1:], shape[0]) if turns else shape
        if values.ndim == len(seen) and seen[-1] == 1:
            values = values[..., None]
        if values.ndim == 1 and loss["kind"] == "soft-cross-entropy":
            raise ValueError("y holds labels, and the loss takes one-hot targets: use sparse_categorical_crossentropy")
        return name, values, "f32", _data.channels_first(len(shape)) if turns else None

    @staticmethod
    def _labels(entry: Entry) -> np.ndarray | None:
        """One label for each sample, where targets are such or as good as such."""
        _, values, dtype, _ = entry
        if values.ndim == 1:
            return values.astype(np.int64)
        if dtype == "f32" and values.ndim == 2:
            return values.argmax(-1) if values.shape[1] > 1 else values[:, 0].astype(np.int64)
        return None

    @staticmethod
    def _check_count(entries: list[Entry]) -> None:
        name, first, _, _ = entries[0]
        for other, values, _, _ in entries[1:]:
            if len(values) != len(first):
                raise ValueError(f"`{name}` has {len(first)} samples, `{other}` has {len(values)}: each sample needs one")

    def predictions(self, outputs: list[tuple[str, np.ndarray]]) -> Any:
        """What a model makes, with its axes as users have them: one array, or a dict of several."""
        if self._output_last:
            outputs = [(name, values.transpose(_data.channels_last(values.ndim))) for name, values in outputs]
        return outputs[0][1] if len(outputs) == 1 else dict(outputs)
