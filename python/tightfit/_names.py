"""Losses, optimizers and metrics by the names of the library, or as Keras has them: as names, dicts, or objects of its classes, which are
only asked for their class and their settings."""

from __future__ import annotations

from typing import Any, Mapping

from . import _tightfit


def plain(name: str) -> str:
    """A name in lower case, letters and digits alone: ``SparseCategoricalCrossentropy`` and ``sparse_categorical_crossentropy`` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _described(what: str, given: Any) -> tuple[str, dict | None]:
    """The name of something and its settings; no settings where there is a name alone."""
    if isinstance(given, str):
        return given, None
    if isinstance(given, Mapping):
        settings = dict(given)
        if "class_name" in settings:
            return settings["class_name"], dict(settings.get("config") or {})
        name = settings.pop("kind", None)
        if not isinstance(name, str):
            raise ValueError(f"{what}: a dict needs its `kind`, such as {{'kind': 'adam', 'lr': 1e-3}}")
        return name, settings
    if hasattr(given, "get_config"):
        return type(given).__name__, dict(given.get_config())
    if callable(given) and hasattr(given, "__name__"):
        return given.__name__, None
    raise ValueError(f"{what}: {given!r} is none; give a name, a dict with its `kind`, or an object of Keras")


def _kinds(registry: list[tuple[str, list[str]]]) -> dict[str, str]:
    """Kinds by their plain names, here and elsewhere."""
    kinds = {name: kind for kind, elsewhere in reversed(registry) for name in elsewhere}
    kinds.update((plain(kind), kind) for kind, _ in registry)
    return kinds


def _unknown(what: str, name: str, kinds: list[str]) -> ValueError:
    return ValueError(f"there is no {what} `{name}`: choose one of {', '.join(kinds)}")


# Settings of Keras's objects that say nothing of what is computed.
_OF_NO_MATTER = {"name", "reduction", "dtype", "axis", "fn", "jit_compile", "is_legacy_optimizer"}
_CROSS_ENTROPIES = {"sparsecategoricalcrossentropy": "cross-entropy", "categoricalcrossentropy": "soft-cross-entropy"}


def loss(given: Any, *, ends_in: str | None, output_rank: int) -> dict:
    """A loss as the library has it. Keras's cross-entropies are of probabilities where the model ends in such, else of logits, unless an
    object says which; they have the classes on the last axis of sequences."""
    name, settings = _described("loss", given)
    is_kind = any(name == kind for kind, _ in _tightfit.losses())
    if is_kind and (settings is None or (isinstance(given, Mapping) and "class_name" not in given)):
        return {"kind": name, **(settings or {})}
    found, settings = plain(name), dict(settings or {})
    reduction = settings.pop("reduction", None)
    if reduction not in (None, "sum_over_batch_size", "mean", "auto"):
        raise ValueError(f"loss: the reduction `{reduction}` is not possible: losses are means")
    if settings.pop("axis", -1) not in (-1, None):
        raise ValueError("loss: classes are on the last axis, or the loss is given as {'kind': 'cross-entropy'}")
    from_logits = settings.pop("from_logits", None)
    smoothing = settings.pop("label_smoothing", 0.0)
    ignored = settings.pop("ignore_class", None)
    if found in _CROSS_ENTROPIES:
        # Where an object says that it is of probabilities, as is its default, a model that makes none is hardly meant.
        is_of_logits = ends_in != "softmax" if not from_logits else True
        result: dict[str, Any] = {"kind": _CROSS_ENTROPIES[found], "from_logits": is_of_logits}
        if output_rank == 2 and result["kind"] == "soft-cross-entropy":
            raise ValueError("loss: one-hot targets of sequences are not possible: give integer labels, and sparse_categorical_crossentropy")
        if output_rank == 2:
            result["classes_last"] = True
    elif found == "binarycrossentropy":
        result = {"kind": "bce" if ends_in == "sigmoid" and not from_logits else "bce-with-logits"}
    else:
        kind = _kinds(_tightfit.losses()).get(found)
        if kind is None:
            raise _unknown("loss", name, [kind for kind, _ in _tightfit.losses()])
        result = {"kind": kind}
        if "delta" in settings:
            result["delta"] = settings.pop("delta")
    if smoothing:
        result["label_smoothing"] = smoothing
    if ignored is not None:
        result["ignore_index"] = ignored
    result.update((key, value) for key, value in settings.items() if key not in _OF_NO_MATTER)
    return result


def optimizer(given: Any) -> tuple[dict, dict]:
    """An optimizer as the library has it, and what its settings say besides: clipping and averages."""
    registry = dict(_tightfit.optimizers())
    name, settings = _described("optimizer", given)
    kind = {plain(kind): kind for kind in registry}.get(plain(name))
    if kind is None:
        raise _unknown("optimizer", name, list(registry))
    settings = {} if settings is None else settings
    # Keras decays weights beside the gradient, whichever optimizer it is.
    is_of_keras = not isinstance(given, (str, Mapping)) or (isinstance(given, Mapping) and "class_name" in given)
    if is_of_keras and settings.get("weight_decay") and kind == "adam":
        kind = "adamw"
    elif is_of_keras and settings.get("weight_decay") and kind not in ("adamw", "lion", "adafactor"):
        raise ValueError(f"optimizer: {name} with Keras's weight_decay is not possible: use AdamW, or a dict, whose decay is an L2 penalty")
    result: dict[str, Any] = {"kind": kind}
    besides: dict[str, Any] = {}
    rate = settings.pop("learning_rate", settings.pop("lr", registry[kind]))
    if isinstance(rate, Mapping) or hasattr(rate, "get_config"):
        raise ValueError("optimizer: a schedule of Keras is not possible as learning rate: give a number, and compile(schedule=…)")
    result["lr"] = float(rate)
    betas = (settings.pop("beta_1", None), settings.pop("beta_2", None))
    if None not in betas:
        result["betas"] = [float(beta) for beta in betas]
    for theirs, ours in (("epsilon", "eps"), ("rho", "alpha")):
        if theirs in settings:
            result[ours] = float(settings.pop(theirs))
    clips = {"clipnorm": "tensor-norm", "clipvalue": "value", "global_clipnorm": "norm"}
    for theirs, ours in clips.items():
        if (most := settings.pop(theirs, None)) is not None:
            besides["clip"] = {ours: float(most)}
    momentum = settings.pop("ema_momentum", None)
    if settings.pop("use_ema", False):
        besides["ema_decay"] = 0.99 if momentum is None else float(momentum)
    if settings.pop("amsgrad", False):
        raise ValueError("optimizer: amsgrad is not possible: leave it out")
    settings.pop("ema_overwrite_frequency", None)
    for ignored in ("loss_scale_factor", "gradient_accumulation_steps"):
        if settings.pop(ignored, None) is not None:
            raise ValueError(f"optimizer: {ignored} is not needed: the planner and compile(loss_scale=…) see to it")
    for key, value in settings.items():
        if key not in _OF_NO_MATTER and not (is_of_keras and value is None):
            result[key] = value
    return result, besides


_MULTIPLE = {"compilemetrics", "compiledmetrics", "mean"}


def metrics(given: Any) -> list[dict]:
    """Metrics as the library has them."""
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, (list, tuple)):
        given = [given]
    registry = _tightfit.metrics()
    kinds = _kinds(registry)
    result = []
    for metric in given:
        name, settings = _described("metric", metric)
        kind = kinds.get(plain(name))
        if kind is None and isinstance(metric, str) and plain(name) in _CROSS_ENTROPIES:
            raise ValueError(f"metric: `{name}` is the loss, which is reported in any case")
        if kind is None:
            raise _unknown("metric", name, [kind for kind, _ in registry])
        settings = dict(settings or {})
        if not isinstance(metric, (str, Mapping)):
            # Of Keras's objects, what matters here.
            settings = {key: settings[key] for key in ("k", "threshold") if settings.get(key) is not None}
            if kind not in ("accuracy", "precision", "recall", "f1", "iou"):
                settings.pop("threshold", None)
        result.append({"kind": kind, **settings})
    return result
