"""How a fit goes: over arrays, which the trainer reads itself, or over batches that come one after the other."""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping

import numpy as np

from . import _data
from ._progress import Progress
from .callbacks import CallbackList


class Means:
    """Loss and accuracy over the batches of an epoch so far."""

    def __init__(self) -> None:
        self._loss = self._samples = self._correct = self._counted = 0.0

    def add(self, outcome: Mapping[str, Any]) -> None:
        self._loss += outcome["loss"] * outcome["samples"]
        self._samples += outcome["samples"]
        self._correct += outcome.get("correct", 0.0)
        self._counted += outcome.get("counted", 0.0)

    def values(self) -> dict[str, float]:
        values = {"loss": self._loss / self._samples if self._samples else math.nan}
        if self._counted:
            values["accuracy"] = self._correct / self._counted
        return values


class Listener:
    """Hears of a fit over arrays, from the native half, and tells callbacks; says whether the fit is to end."""

    def __init__(self, model: Any, callbacks: CallbackList, progress: Progress, first_epoch: int, epochs: int) -> None:
        self._model, self._callbacks, self._progress = model, callbacks, progress
        self._first, self._epochs = first_epoch, epochs
        # What an epoch has besides, such as the validation on batches; filled in by who fits.
        self.validate: Any = None

    def on_epoch_begin(self, epoch: int) -> bool:
        number = self._first + epoch - 1
        self._progress.epoch_begin(number, self._epochs)
        self._callbacks.tell("on_epoch_begin", number, {})
        return self._next_batch(0)

    def _next_batch(self, batch: int) -> bool:
        if not self._model.stop_training and self._callbacks.has_batch_hooks:
            self._callbacks.tell("on_train_batch_begin", batch, {})
        return self._model.stop_training

    def on_steps(self, batches: int, steps: int, means: Mapping[str, float]) -> bool:
        """After each step where there are callbacks for batches, else after some; `means` is what the epoch came to so far."""
        self._progress.step(batches, steps, means)
        if not self._callbacks.has_batch_hooks:
            return False
        self._callbacks.tell("on_train_batch_end", batches - 1, dict(means))
        return self._model.stop_training if batches == steps else self._next_batch(batches)

    def on_epoch_end(self, epoch: int, values: Mapping[str, Any]) -> bool:
        return end_epoch(self._model, self._callbacks, self._progress, self._first + epoch - 1, dict(values), self.validate)

    def on_replan(self, text: str) -> bool:
        print(text)
        return False


def end_epoch(model: Any, callbacks: CallbackList, progress: Progress, epoch: int, logs: dict[str, Any], validate: Any) -> bool:
    """What comes after the last step of an epoch. Whether the fit is to end."""
    if validate is not None:
        callbacks.tell("on_test_begin", {})
        logs.update((f"val_{name}", value) for name, value in validate().items())
    validated = {name.removeprefix("val_"): value for name, value in logs.items() if name.startswith("val_")}
    if validated:
        # The validation on arrays is done already.
        if validate is None:
            callbacks.tell("on_test_begin", {})
        callbacks.tell("on_test_end", validated)
    logs["learning_rate"] = logs.pop("lr", model.optimizer.learning_rate)
    progress.end({name: value for name, value in logs.items() if name != "learning_rate"})
    callbacks.tell("on_epoch_end", epoch, logs)
    return model.stop_training


class Batches:
    """The batches of epochs, from something that is iterated over: one pass is an epoch, unless it is said how many batches are one. Where it
    ends then, it is begun anew."""

    def __init__(self, source: Any, steps: int | None) -> None:
        self._source, self._steps = source, steps
        self._iterator: Iterator[Any] | None = None
        self._first: list[Any] = []
        self._is_begun = False
        self.steps = steps if steps is not None else _data.length(source)

    def peek(self) -> Any:
        """The first batch, which the first epoch has all the same."""
        self._iterator = _data.iterate(self._source)
        for batch in self._iterator:
            self._first = [batch]
            return batch
        raise ValueError("there are no batches: the iterable ended at once")

    def epoch(self) -> Iterator[Any]:
        if self._iterator is None or (self._steps is None and not self._first):
            self._iterator = _data.iterate(self._source)
        count = 0
        while self._steps is None or count < self._steps:
            # What has its places alone may be endless: Keras's PyDataset ends at its length.
            if self._steps is None and self.steps is not None and count >= self.steps:
                break
            batch = self._first.pop() if self._first else next(self._iterator, self)
            if batch is self and self._steps is not None:
                self._iterator = _data.iterate(self._source)
                batch = next(self._iterator, self)
            if batch is self:
                if count == 0 and not self._is_begun:
                    raise ValueError("there are no batches: the iterable ended at once")
                if count == 0:
                    raise ValueError(
                        "the iterable has ended and cannot be begun anew, as generators cannot: give one that can, such as a list or an object "
                        "with __iter__, or one that goes on, with steps_per_epoch"
                    )
                if self._steps is not None:
                    raise ValueError(f"the iterable ended after {count} of {self._steps} batches of an epoch: give more, or fewer steps_per_epoch")
                break
            count += 1
            self._is_begun = True
            yield batch
        if hasattr(self._source, "on_epoch_end"):
            self._source.on_epoch_end()


def slices(entries: list[_data.Entry], batch: int, *, shuffle: bool, seed: int) -> Iterator[list[_data.Entry]]:
    """Batches of arrays without an end, each pass in an order of its own."""
    count, random = len(entries[0][1]), np.random.default_rng(seed)
    while True:
        order = random.permutation(count) if shuffle else np.arange(count)
        for start in range(0, count - batch + 1, batch):
            yield _data.taken(entries, order[start : start + batch])
