"""Trains neural networks on any GPU, or the CPU, inside a byte budget.

>>> import tightfit as tf_
>>> plan = tf_.plan("mnist-cnn", batch=64, budget="30MiB")
>>> plan.peak_bytes <= 30 * 1024**2
True

`plan` says what a training takes before anything runs, `advise` what would help where it does not fit. `Model` is made, compiled and fitted as a
model of Keras is. The guide is docs/python.md.
"""

from __future__ import annotations

import os
from typing import Any

from . import _settings, _tightfit, callbacks
from ._bytes import format_bytes, parse_bytes
from ._model import Model
from ._plan import Advice, Plan
from ._plan import advice as _advice
from ._tightfit import InfeasibleError, __version__
from .callbacks import Callback, History

__all__ = [
    "Advice",
    "Callback",
    "History",
    "InfeasibleError",
    "Model",
    "Plan",
    "advise",
    "callbacks",
    "devices",
    "format_bytes",
    "models",
    "parse_bytes",
    "plan",
]


def models() -> list[str]:
    """Names of the built-in models: docs/models.md says what they are."""
    return list(_tightfit.models())


def devices() -> list[dict[str, Any]]:
    """What there is to train on, as dicts: `device` is what `compile(device=…)` takes, `default` is true of what is taken where none is named."""
    return list(_tightfit.devices())


def _asked(model: Any, batch: int, budget: Any, settings: dict[str, Any]) -> tuple[Any, str, str | None, str | None]:
    """A model and its settings, and what they are planned for."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        model = Model.from_toml(path) if path.endswith(".toml") else Model.builtin(path)
    if not isinstance(model, Model):
        raise TypeError(f"{model!r} is no model: give a tightfit.Model, the name of a built-in one, or the path of a TOML file")
    device, device_class = settings.pop("device", None), settings.pop("device_class", None)
    known: dict[str, Any] = {"loss": None, "optimizer": None}
    if model._settings is not None:
        # As it was compiled, unless something else is asked for.
        base = dict(model._settings)
        device = device if device is not None else model._device
    else:
        base = None
    names = ("loss", "optimizer", "metrics", "loss_weights", "precision", "micro_batches", "schedule", "seed", "clip_norm")
    known |= {name: settings.pop(name) for name in names if name in settings}
    drop_last = settings.pop("drop_last", True)
    if base is None or known["loss"] is not None or known["optimizer"] is not None:
        defaults = model._defaults
        known["loss"] = known["loss"] if known["loss"] is not None else (base or {}).get("loss") or defaults.get("loss")
        if known["loss"] is None:
            raise ValueError("loss is missing, such as loss='sparse_categorical_crossentropy'")
        known["optimizer"] = known["optimizer"] or (base or {}).get("optimizer") or defaults.get("optimizer", "adam")
        groups = {"groups": defaults["groups"]} if "groups" in defaults else {}
        found = _settings.settings(model._network, budget=budget, others={**groups, **settings}, **known)
    else:
        changed = _settings.settings(model._network, budget=budget, others=settings, **{**known, "loss": base["loss"], "optimizer": base["optimizer"]})
        named = {name for name in known if known[name] is not None} | set(settings) | {"budget_bytes", "auto_budget", "clip"}
        found = {**base, **{name: value for name, value in changed.items() if name in named}}
        if budget is not None:
            for name in ("budget_bytes", "auto_budget"):
                if name not in changed:
                    found.pop(name, None)
    if isinstance(batch, bool) or int(batch) != batch or batch < 1:
        raise ValueError(f"batch={batch!r} is not possible: give a whole number, 1 or more")
    found.update(batch=int(batch), drop_last=bool(drop_last))
    return model._network, _settings.dumped(found), None if device is None else str(device), device_class


def plan(model: Any, batch: int, budget: str | int | None = None, **settings: Any) -> Plan:
    """What a training takes, before anything runs.

    `model` is a `Model`, the name of a built-in one or the path of a model file. `settings` are those of `Model.compile`; a compiled model brings
    its own. Without `device`, the plan is for any discrete GPU (``device_class="cpu"`` and others name another class); ``device="auto"`` is what
    training would take.

    >>> plan("resnet18_cifar", batch=128, budget="256MiB", optimizer="sgd").fits
    True

    Raises `InfeasibleError` where no plan is within the budget.
    """
    network, text, device, device_class = _asked(model, batch, budget, dict(settings))
    return Plan(**_tightfit.plan(network, text, device, device_class))


def advise(model: Any, batch: int, budget: str | int, **settings: Any) -> Advice:
    """What may be done where a training does not fit a budget: each remedy as a plan, the cheapest that fits, and what the memory is. As `plan`
    otherwise. That nothing fits is no error."""
    network, text, device, device_class = _asked(model, batch, budget, dict(settings))
    return _advice(_tightfit.advise(network, text, device, device_class))
