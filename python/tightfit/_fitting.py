"""What a compiled model does with data: it is fitted, evaluated, and predicts."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from . import _data, _settings, _tightfit, _training
from ._feed import Feed
from ._progress import Progress, resolve
from .callbacks import CallbackList, History


class Fitting:
    """The part of `Model` that takes data."""

    # What `Model` has.
    _settings: dict[str, Any] | None
    _trainer: Any
    _evaluates: bool
    _is_fitting: bool
    stop_training: bool
    history: History | None
    optimizer: Any

    def _compiled(self) -> None:
        raise NotImplementedError

    def _feed(self) -> Feed:
        raise NotImplementedError

    def _mixes(self) -> bool:
        raise NotImplementedError

    def _training(self, batch: int, *, drop_last: bool, weighted: bool) -> Any:
        raise NotImplementedError

    def _any_trainer(self) -> Any:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
    ) -> History:
        """Trains, on arrays or on an iterable of batches ``(x, y)`` or ``(x, y, sample_weight)``, such as a generator. As Keras's `fit`;
        docs/python.md says what is different. Ctrl-C ends it after the step at hand, whose parameters stay.
        """
        self._compiled()
        if self._is_fitting:
            raise RuntimeError("a fit of this model is running: wait for it, or use another model")
        epochs, initial_epoch = _settings.count("epochs", epochs), _settings.count("initial_epoch", initial_epoch)
        steps = None if steps_per_epoch is None else _settings.count("steps_per_epoch", steps_per_epoch, least=1)
        history, progress = History(), Progress(resolve(verbose))
        self.stop_training = False
        self._is_fitting = True
        try:
            arguments = (batch_size, epochs, callbacks, validation_data, initial_epoch, steps, validation_steps, history, progress)
            if _data.is_batches(x):
                if y is not None or sample_weight is not None or validation_split:
                    raise ValueError("batches bring their targets and weights: leave y, sample_weight and validation_split out")
                self._fit_batches(x, class_weight, *arguments)
            else:
                self._fit_arrays(x, y, sample_weight, class_weight, validation_split, shuffle, *arguments)
        finally:
            self._is_fitting = False
        self.history = history
        return history

    def _fit_arrays(self, x, y, sample_weight, class_weight, validation_split, shuffle, batch_size, epochs, callbacks, validation_data, first, steps, validation_steps, history, progress) -> None:  # fmt: skip
        weighted = sample_weight is not None or class_weight is not None
        feed = self._feed()
        entries = feed.all(x, y, sample_weight, class_weight)
        validation, is_batches = None, False
        if validation_data is not None:
            if not hasattr(validation_data, "__iter__") and not hasattr(validation_data, "__getitem__"):
                raise TypeError(f"validation_data={validation_data!r} is not possible: give (x, y), or batches of them")
            is_batches = _data.is_batches(validation_data)
            if not is_batches:
                validation = feed.all(*_data.unpacked(tuple(validation_data), needs_targets=True), weighted=weighted)
        elif validation_split:
            if not isinstance(validation_split, (int, float)) or not 0.0 < validation_split < 1.0:
                raise ValueError(f"validation_split={validation_split} is not possible: it must be between 0 and 1")
            at = int(len(entries[0][1]) * (1.0 - validation_split))
            if at == 0 or at == len(entries[0][1]):
                raise ValueError(f"validation_split={validation_split} leaves nothing of {len(entries[0][1])} samples to train or validate on")
            entries, validation = _data.part(entries, None, at), _data.part(entries, at, None)
        count = len(entries[0][1])
        batch = min(_settings.count("batch_size", 32 if batch_size is None else batch_size, least=1), count)
        if steps is not None:
            batches = _training.slices(entries, batch, shuffle=bool(shuffle), seed=self._settings["seed"])
            source = _training.Batches(batches, steps)
            validate = self._validator(validation_data if is_batches else validation, validation_steps, is_batches)
            self._loop(source, lambda entries: entries, batch, epochs, callbacks, first, history, progress, weighted, validate)
            return
        trainer = self._training(batch, drop_last=count % batch == 0 or self._mixes(), weighted=weighted)
        steps = count // batch if self._mixes() else -(-count // batch)
        chosen = self._callbacks(callbacks, history, epochs, steps)
        listener = _training.Listener(self, chosen, progress, first, epochs)
        if is_batches:
            listener.validate = self._validator(validation_data, validation_steps, True)
        chosen.tell("on_train_begin", {})
        if not self.stop_training and first < epochs:
            trainer.fit(entries, validation, (epochs - first, bool(shuffle), chosen.has_batch_hooks), listener)
        chosen.tell("on_train_end", {})

    def _fit_batches(self, source, class_weight, batch_size, epochs, callbacks, validation_data, first, steps, validation_steps, history, progress) -> None:  # fmt: skip
        if batch_size is not None:
            raise ValueError("batches have their own size: leave batch_size out")
        feed, batches = self._feed(), _training.Batches(source, steps)
        x, y, weight = _data.unpacked(batches.peek(), needs_targets=True)
        weighted = weight is not None or class_weight is not None
        batch = len(feed.inputs(x)[0][1])

        def entries(given: Any) -> list[_data.Entry]:
            x, y, weight = _data.unpacked(given, needs_targets=True)
            return feed.all(x, y, weight, class_weight, weighted=weighted)

        is_batches = validation_data is not None and _data.is_batches(validation_data)
        if validation_data is not None and not is_batches:
            validation_data = feed.all(*_data.unpacked(tuple(validation_data), needs_targets=True), weighted=weighted)
        validate = self._validator(validation_data, validation_steps, is_batches)
        self._loop(batches, entries, batch, epochs, callbacks, first, history, progress, weighted, validate)

    def _loop(self, batches, entries, batch, epochs, callbacks, first, history, progress, weighted, validate) -> None:
        """Steps on batches as they come."""
        trainer = self._training(batch, drop_last=self._mixes(), weighted=weighted)
        chosen = self._callbacks(callbacks, history, epochs, batches.steps)
        chosen.tell("on_train_begin", {})
        for epoch in range(first, epochs):
            if self.stop_training:
                break
            means = _training.Means()
            progress.epoch_begin(epoch, epochs)
            chosen.tell("on_epoch_begin", epoch, {})
            trainer.reset_state()
            for number, given in enumerate(batches.epoch()):
                given = entries(given)
                found = len(given[0][1])
                if found > batch:
                    raise ValueError(f"a batch has {found} samples, the first had {batch}: batches may be smaller, not larger")
                if found < batch and self._mixes():
                    # As the last batch of arrays that is not full.
                    continue
                chosen.tell("on_train_batch_begin", number, {})
                means.add(trainer.step(given))
                values = means.values()
                progress.step(number + 1, batches.steps, values)
                chosen.tell("on_train_batch_end", number, values)
                if self.stop_training:
                    break
            if _training.end_epoch(self, chosen, progress, epoch, means.values(), validate):
                break
        chosen.tell("on_train_end", {})

    def _validator(self, data: Any, steps: int | None, is_batches: bool) -> Any:
        if data is None:
            return None
        if is_batches:
            return lambda: self._evaluate_batches(data, steps, averaged=True)
        return lambda: _without_samples(self._trainer.evaluate(data, True))

    def _callbacks(self, callbacks: Any, history: History | None, epochs: int, steps: int | None) -> CallbackList:
        given = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
        return CallbackList(given if history is None else [history, *given], self, {"epochs": epochs, "steps": steps, "verbose": 0})

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = 0,
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """The loss, or a list of it and of metrics; with `return_dict` by name. `batch_size` does not matter: the plan has its own."""
        self._compiled()
        chosen = self._callbacks(callbacks, None, 1, steps)
        chosen.tell("on_test_begin", {})
        if _data.is_batches(x):
            values = self._evaluate_batches(x, steps)
        else:
            trainer = self._any_trainer()
            weighted = self._settings.get("sample_weights", False)
            if sample_weight is not None and not weighted:
                self._refit_weights()
                trainer = self._any_trainer()
            values = _without_samples(trainer.evaluate(self._feed().all(x, y, sample_weight, weighted=weighted), False))
        chosen.tell("on_test_end", values)
        if resolve(verbose):
            progress = Progress(2)
            progress.begin()
            progress.end(values)
        if return_dict:
            return values
        return values["loss"] if len(values) == 1 else list(values.values())

    def _refit_weights(self) -> None:
        """Evaluates with weights of samples from here on."""
        if self._is_fitting:
            raise RuntimeError("evaluate with sample_weight in the middle of a fit without is not possible")
        self._release()
        self._settings["sample_weights"] = True

    def _evaluate_batches(self, source: Any, steps: int | None, averaged: bool = False) -> dict[str, Any]:
        batches, feed = _training.Batches(source, steps), self._feed()
        running = _tightfit.Running(_settings.dumped(self._settings["metrics"]))
        total = samples = right = 0.0
        trainer = None
        for given in batches.epoch():
            x, y, weight = _data.unpacked(given, needs_targets=True)
            trainer = trainer or self._any_trainer()
            entries = feed.all(x, y, weight, weighted=self._settings.get("sample_weights", False))
            found = trainer.evaluate_next(entries, running)
            total += found["loss"] * found["samples"]
            right += found.get("accuracy", 0.0) * found["samples"]
            samples += found["samples"]
            has_accuracy = "accuracy" in found
        values = {"loss": total / samples}
        if has_accuracy:
            values["accuracy"] = right / samples
        values.update(running.values())
        return values

    def predict(self, x: Any, batch_size: int | None = None, verbose: Any = 0, steps: int | None = None, callbacks: Any = None) -> Any:
        """What the model makes of samples: an array, or a dict by name of a model with several outputs. `batch_size` does not matter."""
        chosen = self._callbacks(callbacks, None, 1, steps)
        chosen.tell("on_predict_begin", {})
        predictions = self._predict(x, steps)
        chosen.tell("on_predict_end", {})
        return predictions

    def _predict(self, x: Any, steps: int | None) -> Any:
        feed = self._feed()
        if not _data.is_batches(x):
            return feed.predictions(self._any_trainer().predict(feed.inputs(x)))
        parts: list[list[tuple[str, np.ndarray]]] = []
        for given in _training.Batches(x, steps).epoch():
            samples, _, _ = _data.unpacked(given, needs_targets=False, inputs=feed.count)
            parts.append(self._any_trainer().predict(feed.inputs(samples)))
        names = [name for name, _ in parts[0]]
        return feed.predictions([(name, np.concatenate([part[i][1] for part in parts])) for i, name in enumerate(names)])

    def predict_on_batch(self, x: Any) -> Any:
        """As `predict`."""
        return self.predict(x)

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Mapping[int, float] | None = None, return_dict: bool = False
    ) -> Any:
        """One step. All batches of a loop may be as large as the first, or smaller."""
        self._compiled()
        if self._is_fitting:
            raise RuntimeError("train_on_batch in the middle of a fit is not possible")
        weighted = sample_weight is not None or class_weight is not None or self._settings.get("sample_weights", False)
        entries = self._feed().all(x, y, sample_weight, class_weight, weighted=weighted)
        count = len(entries[0][1])
        size = self._settings.get("batch", count)
        batch = size if self._trainer is not None and not self._evaluates and count <= size else count
        means = _training.Means()
        means.add(self._training(batch, drop_last=self._mixes(), weighted=weighted).step(entries))
        values = means.values()
        if return_dict:
            return values
        return values["loss"] if len(values) == 1 else list(values.values())

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """As `evaluate`."""
        return self.evaluate(x, y, sample_weight=sample_weight, return_dict=return_dict)

    def reset_states(self) -> None:
        """Begins what stateful layers carry from batch to batch anew."""
        if self._trainer is not None:
            self._trainer.reset_state()


def _without_samples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "samples"}
