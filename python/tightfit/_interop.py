"""Models of Keras, which is not imported: its objects are asked for their JSON and their weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _tightfit


def from_keras(model: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The network of a model of Keras, and its weights."""
    if not hasattr(model, "to_json") or not hasattr(model, "layers"):
        raise TypeError(f"{type(model).__name__} is no model of Keras: it has no to_json()")
    if not getattr(model, "built", True):
        raise ValueError("the model of Keras is not built: give it an Input, or call build(input_shape)")
    network = _tightfit.keras_from_json(model.to_json())
    layers = []
    for path in _tightfit.keras_layers(network):
        layer = _find(model, path)
        if layer is None:
            raise ValueError(f"the model of Keras has no layer `{'/'.join(path)}`, which its JSON names")
        layers.append((path, [_array(weight) for weight in layer.weights]))
    return network, dict(_tightfit.keras_weights(network, layers))


def to_keras(network: Any, weights: dict[str, np.ndarray], model: Any) -> None:
    """Puts weights into a model of Keras of the same layers."""
    if not hasattr(model, "layers"):
        raise TypeError(f"{type(model).__name__} is no model of Keras: it has no layers")
    ours = _tightfit.keras_arrays(network, list(weights.items()))
    # By name; of a model that was made anew, whose layers have other numbers in their names, in order.
    theirs = [_find(model, path) for path, _ in ours]
    if None in theirs:
        theirs = [layer for layer in _leaves(model) if layer.weights]
        if len(theirs) != len(ours):
            raise ValueError(
                f"the model of Keras has {len(theirs)} layers with weights, and this one has {len(ours)}: give the model that it was made from, or one of the same layers"
            )
    changes = []
    for layer, (path, arrays) in zip(theirs, ours):
        found = [tuple(weight.shape) for weight in layer.weights]
        if found != [array.shape for array in arrays]:
            raise ValueError(
                f"layer `{layer.name}` of the model of Keras has weights of other shapes than `{'/'.join(path)}`: give the model that this one was made from, or one of the same layers"
            )
        changes.append((layer, arrays))
    for layer, arrays in changes:
        for weight, array in zip(layer.weights, arrays):
            if hasattr(weight, "assign"):
                weight.assign(array)
            else:
                layer.set_weights(arrays)
                break


def _find(model: Any, path: list[str]) -> Any | None:
    """The layer at a path of names, if there is one."""
    for name in path:
        model = next((layer for layer in getattr(model, "layers", []) if layer.name == name), None)
        if model is None:
            return None
    return model


def _leaves(model: Any) -> list[Any]:
    """The layers of a model and of those within it, in order."""
    leaves = []
    for layer in model.layers:
        leaves += _leaves(layer) if hasattr(layer, "layers") else [layer]
    return leaves


def _array(weight: Any) -> np.ndarray:
    values = weight.numpy() if hasattr(weight, "numpy") else weight
    return np.asarray(values, dtype=np.float32)
