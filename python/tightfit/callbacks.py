"""Callbacks, with the names and the manners of Keras's. Those of Keras itself work too, as far as they only use what is here: ``model`` with
``stop_training``, ``optimizer.learning_rate``, weights, ``evaluate`` and ``predict``."""

from __future__ import annotations

import csv
import math
import os
from typing import Any, Callable, Mapping

import numpy as np

Logs = Mapping[str, Any]

_BATCH_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


class Callback:
    """Sees the events of a fit. Epochs and batches count from 0. Setting ``self.model.stop_training`` ends the fit.

    >>> class Halve(Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         self.model.optimizer.learning_rate *= 0.5
    """

    model: Any = None
    params: Mapping[str, Any] = {}

    def set_model(self, model: Any) -> None:
        self.model = model

    def set_params(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Before the first step."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """After the last step; not where the fit fails."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Before the first step of an epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """After an epoch, and its validation where there is one: `loss`, `val_loss`, metrics."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Before a step."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """After a step: means over the epoch so far."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Before an evaluation, and before the validation of an epoch on batches; on arrays, when that is done."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """After an evaluation or the validation of an epoch: loss and metrics, without `val_` before their names."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Before a prediction."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """After a prediction."""


class History(Callback):
    """What a fit came to: ``epoch`` lists epochs, ``history`` has a list for each value, such as ``history["val_loss"]``."""

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[Any]] = {}

    def set_model(self, model: Any) -> None:
        # The model has it: were it to have the model too, that would stay in memory until Python looks for cycles.
        pass

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)

    def __repr__(self) -> str:
        return f"<tightfit.History of {len(self.epoch)} epochs: {', '.join(self.history)}>"


class CallbackList:
    """Tells several callbacks, in their order."""

    def __init__(self, callbacks: list[Any], model: Any, params: Mapping[str, Any]) -> None:
        self.callbacks = callbacks
        for callback in self.callbacks:
            if not any(name.startswith("on_") for name in dir(callback)):
                raise TypeError(f"{callback!r} is no callback: give objects with the methods of tightfit.Callback")
        for callback in self.callbacks:
            if isinstance(callback, type):
                raise TypeError(f"callbacks holds the class {callback.__name__}: give an object, {callback.__name__}()")
            if hasattr(callback, "set_params"):
                callback.set_params(params)
            if hasattr(callback, "set_model"):
                callback.set_model(model)
            else:
                callback.model = model
        self.has_batch_hooks = any(_has(callback, hook) for callback in self.callbacks for hook in _BATCH_HOOKS)

    def tell(self, event: str, *args: Any) -> None:
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(*args)


def _has(callback: Any, hook: str) -> bool:
    """Whether a callback does anything at an event: a base class, here or in Keras, does not."""
    if hook in vars(callback):
        return vars(callback)[hook] is not None
    owner = next((cls for cls in type(callback).__mro__ if hook in vars(cls)), None)
    return owner is not None and owner.__name__ != "Callback"


class LambdaCallback(Callback):
    """Callbacks from functions: ``LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))``."""

    def __init__(self, **functions: Callable[..., None]) -> None:
        for name, function in functions.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise ValueError(f"LambdaCallback: there is no event `{name}`")
            setattr(self, name, function)


_LOWER = ("loss", "error", "mae", "mse", "rmse", "perplexity")


class _Watching(Callback):
    """Looks whether a value got better."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode={mode!r} is not possible: auto, min or max")
        self.monitor = monitor
        self._is_lower = mode == "min" or (mode == "auto" and any(word in monitor for word in _LOWER))
        self._min_delta = abs(min_delta)
        self.best = math.inf if self._is_lower else -math.inf

    def _value(self, logs: Logs | None) -> float | None:
        value = (logs or {}).get(self.monitor)
        if value is None:
            known = ", ".join(logs or {})
            raise ValueError(f"{type(self).__name__}: there is no value `{self.monitor}`, there are {known}")
        if isinstance(value, list):
            raise ValueError(f"{type(self).__name__}: `{self.monitor}` is several numbers, of which none can be watched")
        return float(value)

    def _is_better(self, value: float, than: float) -> bool:
        return value < than - self._min_delta if self._is_lower else value > than + self._min_delta


class EarlyStopping(_Watching):
    """Ends a fit when a value was not better for `patience` epochs.

    >>> stop = EarlyStopping(monitor="val_loss", patience=3, restore_best_weights=True)
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience, self.verbose, self.baseline = patience, verbose, baseline
        self.restore_best_weights, self.start_from_epoch = restore_best_weights, start_from_epoch
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best_weights: dict[str, np.ndarray] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best = math.inf if self._is_lower else -math.inf
        self.best_weights = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if epoch < self.start_from_epoch:
            return
        value = self._value(logs)
        if self.restore_best_weights and self.best_weights is None:
            # Whatever happens, there is something to go back to.
            self.best_weights, self.best_epoch = self.model.get_weights(), epoch
        self.wait += 1
        if self._is_better(value, self.best):
            self.best, self.best_epoch = value, epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            if self.baseline is None or self._is_better(value, self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch and self.verbose:
            print(f"stopped early after epoch {self.stopped_epoch + 1}, the best was epoch {self.best_epoch + 1}")
        if self.restore_best_weights and self.best_weights is not None:
            self.model.set_weights(self.best_weights)
            self.best_weights = None


class ModelCheckpoint(_Watching):
    """Saves weights after each epoch, as safetensors; `filepath` may name values: ``"best-{epoch:02d}-{val_loss:.3f}.safetensors"``."""

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = True,
        mode: str = "auto",
    ) -> None:
        super().__init__(monitor, mode)
        if not save_weights_only:
            raise ValueError("ModelCheckpoint: weights alone are saved: leave save_weights_only as it is")
        self.filepath, self.verbose, self.save_best_only = os.fspath(filepath), verbose, save_best_only

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_best_only:
            value = self._value(logs)
            if not self._is_better(value, self.best):
                return
            self.best = value
        numbers = {name: value for name, value in (logs or {}).items() if not isinstance(value, list)}
        try:
            path = self.filepath.format(epoch=epoch + 1, **numbers)
        except (KeyError, IndexError) as error:
            raise ValueError(f"ModelCheckpoint: `{self.filepath}` names {error}, there are epoch, {', '.join(numbers)}") from None
        self.model.save_weights(path)
        if self.verbose:
            print(f"epoch {epoch + 1}: saved to {path}")


class LearningRateScheduler(Callback):
    """Sets the learning rate of each epoch: ``schedule(epoch, lr)`` or ``schedule(epoch)``."""

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        self.schedule, self.verbose = schedule, verbose

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        now = self.model.optimizer.learning_rate
        try:
            rate = self.schedule(epoch, now)
        except TypeError:
            rate = self.schedule(epoch)
        try:
            self.model.optimizer.learning_rate = float(rate)
        except (TypeError, ValueError) as error:
            raise ValueError(f"LearningRateScheduler: the schedule gave {rate!r} for epoch {epoch}: {error}") from None
        if self.verbose:
            print(f"epoch {epoch + 1}: learning rate {float(rate):.3g}")


class ReduceLROnPlateau(_Watching):
    """Multiplies the learning rate by `factor` when a value was not better for `patience` epochs."""

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if not 0 < factor < 1:
            raise ValueError(f"ReduceLROnPlateau: a factor of {factor} is not possible: it must be between 0 and 1")
        self.factor, self.patience, self.verbose, self.cooldown, self.min_lr = factor, patience, verbose, cooldown, min_lr
        self.wait = self.cooldown_counter = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait = self.cooldown_counter = 0
        self.best = math.inf if self._is_lower else -math.inf

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self._value(logs)
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self._is_better(value, self.best):
            self.best, self.wait = value, 0
        elif self.cooldown_counter == 0:
            self.wait += 1
            now = self.model.optimizer.learning_rate
            if self.wait >= self.patience and now > self.min_lr:
                self.model.optimizer.learning_rate = max(now * self.factor, self.min_lr)
                self.cooldown_counter, self.wait = self.cooldown, 0
                if self.verbose:
                    print(f"epoch {epoch + 1}: learning rate {self.model.optimizer.learning_rate:.3g}")


class CSVLogger(Callback):
    """Writes a table with a row for each epoch."""

    def __init__(self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False) -> None:
        self.filename, self.separator, self.append = os.fspath(filename), separator, append
        self._file: Any = None
        self._writer: Any = None
        self._keys: list[str] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        is_new = not self.append or not os.path.exists(self.filename) or os.path.getsize(self.filename) == 0
        self._file = open(self.filename, "w" if is_new else "a", newline="", encoding="utf-8")
        self._writer, self._is_new = None, is_new

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = logs or {}
        if self._writer is None:
            self._keys = sorted(logs)
            self._writer = csv.writer(self._file, delimiter=self.separator)
            if self._is_new:
                self._writer.writerow(["epoch", *self._keys])
        self._writer.writerow([epoch, *(logs.get(key, "NA") for key in self._keys)])
        self._file.flush()

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class TerminateOnNaN(Callback):
    """There for programs that have it: a loss that is not finite ends a fit in any case, with a FloatingPointError that says where it came
    from."""
