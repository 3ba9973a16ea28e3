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
        layers.append((path, [_array(weight) for weight in _layer(model, path).weights]))
    return network, dict(_tightfit.keras_weights(network, layers))


def to_keras(network: Any, weights: dict[str, np.ndarray], model: Any) -> None:
    """Puts weights into a model of Keras of the same layers."""
    changes = []
    for path, arrays in _tightfit.keras_arrays(network, list(weights.items())):
        layer = _layer(model, path)
        found = [tuple(weight.shape) for weight in layer.weights]
        if found != [array.shape for array in arrays]:
            raise ValueError(f"layer `{'/'.join(path)}` of the model of Keras has weights of other shapes: give the model that this one was made from")
        changes.append((layer, arrays))
    for layer, arrays in changes:
        for weight, array in zip(layer.weights, arrays):
            if hasattr(weight, "assign"):
                weight.assign(array)
            else:
                layer.set_weights(arrays)
                break


def _layer(model: Any, path: list[str]) -> Any:
    for name in path:
        found = [layer for layer in model.layers if layer.name == name] if hasattr(model, "layers") else []
        if not found:
            raise ValueError(f"the model of Keras has no layer `{'/'.join(path)}`")
        model = found[0]
    return model


def _array(weight: Any) -> np.ndarray:
    values = weight.numpy() if hasattr(weight, "numpy") else weight
    return np.asarray(values, dtype=np.float32)
