"""Settings of a training, as the native half reads them."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from . import _data, _names, _tightfit
from ._bytes import budget_settings

# What `compile` and `plan` take besides, and what the settings call it.
_OTHERS = (
    "levers",
    "layer_precision",
    "save_activations",
    "loss_scale",
    "groups",
    "freeze",
    "train_only",
    "ema_decay",
    "grad_norm",
    "threads",
    "statistics",
    "clip",
)


def count(name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number of something."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}={value!r} is not a whole number") from None
    if isinstance(value, (bool, str, bytes)) or number != value or not least <= number <= most:
        wanted = f"{least} or more" if most == 2**63 - 1 else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} is not possible: give a whole number, {wanted}")
    return number


def path(given: Any) -> str:
    """A path as text."""
    try:
        found = os.fsdecode(given)
    except TypeError:
        raise TypeError(f"{given!r} is no path: give a str or a pathlib.Path") from None
    if not found:
        raise ValueError("the path is empty: give the name of a file")
    return found


def dumped(settings: Mapping[str, Any]) -> str:
    """As JSON. Numbers of NumPy are numbers."""

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"{value!r} is not a setting")

    try:
        return json.dumps(settings, default=plain, allow_nan=False)
    except RecursionError:
        raise ValueError("settings: one holds others too deeply, or itself") from None
    except ValueError as error:
        if "Circular" in str(error):
            raise ValueError("settings: one holds itself") from None
        wrong = [name for name, value in settings.items() if "NaN" in str(value) or "nan" in str(value) or "inf" in str(value)]
        raise ValueError(f"settings: {', '.join(wrong) or 'one'} has a number that is not finite") from None


def output_loss(network: Any, output: str, given: Any) -> dict:
    """The loss of an output."""
    outputs = {name: shape for name, _, shape in network.outputs()}
    return _names.loss(given, ends_in=network.ends_in(output), output_rank=len(outputs[output]))


def settings(
    network: Any,
    *,
    loss: Any,
    optimizer: Any,
    metrics: Any = None,
    loss_weights: Any = None,
    budget: str | int | None = None,
    precision: str | None = None,
    micro_batches: int | None = None,
    schedule: Any = None,
    seed: int = 0,
    clip_norm: float | None = None,
    others: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Settings without the batch."""
    outputs = [name for name, _, _ in network.outputs()]
    _, first = network.keras_names()
    losses = _by_output("loss", loss, outputs, first)
    weights = _by_output("loss_weights", loss_weights, outputs, first) if loss_weights is not None else {}
    if outputs[0] not in losses:
        raise ValueError(f"loss: that of `{outputs[0]}`, the model's last layer, is missing")
    chosen, besides = _names.optimizer(optimizer)
    result: dict[str, Any] = {
        "loss": output_loss(network, outputs[0], losses[outputs[0]]),
        "loss_weight": float(weights.get(outputs[0], 1.0)),
        "heads": [
            {
                "output": output,
                "target": f"target.{output}",
                "weight": float(weights.get(output, 1.0)),
                "loss": output_loss(network, output, losses[output]),
            }
            for output in outputs[1:]
            if losses.get(output) is not None
        ],
        "optimizer": chosen,
        "metrics": _names.metrics(metrics),
        "seed": count("seed", seed),
        **besides,
        **budget_settings(budget),
    }
    if precision is not None:
        result["precision"] = precision
    if micro_batches is not None:
        result["micro_batches"] = count("micro_batches", micro_batches, least=1)
    if schedule is not None:
        result["schedule"] = {"kind": schedule} if isinstance(schedule, str) else dict(schedule)
    if clip_norm is not None:
        result["clip"] = {"norm": float(clip_norm)}
    for name, value in (others or {}).items():
        if name not in _OTHERS:
            raise TypeError(f"there is no setting `{name}`: besides those in the signature there are {', '.join(_OTHERS)}")
        if name == "threads" and value is not None:
            value = count("threads", value, least=1, most=_tightfit.MOST_THREADS)
        if value is not None:
            result[name] = [value] if name in ("freeze", "train_only") and isinstance(value, str) else value
    return result


def _by_output(what: str, given: Any, outputs: list[str], first: str | None) -> dict[str, Any]:
    is_several = isinstance(given, Mapping) and "kind" not in given and "class_name" not in given
    if is_several:
        given = _data.renamed(given, outputs, first)
        unknown = [name for name in given if name not in outputs]
        if unknown:
            raise ValueError(f"{what}: the model has no output `{unknown[0]}`, it has {', '.join(outputs)}")
        return dict(given)
    if isinstance(given, (list, tuple)):
        if len(given) != len(outputs):
            raise ValueError(f"{what}: {len(given)} given for {len(outputs)} outputs ({', '.join(outputs)})")
        return dict(zip(outputs, given))
    return {outputs[0]: given}


def takes_labels(loss: Mapping[str, Any]) -> bool:
    """Whether targets are labels."""
    return _tightfit.Network.takes_labels(dumped(loss))
