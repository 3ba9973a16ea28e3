"""What users give as data, as arrays that the trainer reads."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np

# A name, the array, what its elements become, and the order of a sample's axes where it is another.
Entry = tuple[str, np.ndarray, str, "list[int] | None"]


def array(name: str, value: Any) -> np.ndarray:
    """An array of numbers, which is what was given wherever that can be read as it is."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"`{name}` is a masked array: fill it, or weigh what is masked with sample_weight=0")
    try:
        # A tensor of another framework hands over its memory, or a copy of it.
        found = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"`{name}` cannot be read as an array: {error}") from error
    kind = found.dtype.kind
    if kind not in "fiub":
        what = {"O": "objects", "U": "text", "S": "text", "c": "complex numbers"}.get(kind, str(found.dtype))
        raise TypeError(f"`{name}` is an array of {what}: give one of numbers, such as float32, uint8 or int64")
    if kind == "f" and found.dtype.itemsize not in (4, 8):
        found = found.astype(np.float32)
    if not found.dtype.isnative:
        found = found.astype(found.dtype.newbyteorder("="))
    if not found.flags.aligned:
        found = found.copy()
    if found.ndim == 0:
        raise ValueError(f"`{name}` is one number: its first axis must be the samples")
    if found.size == 0:
        raise ValueError(f"`{name}` of shape {found.shape} is empty")
    # Nobody else changes the shape of a view.
    return found.view()


def channels_first(rank: int) -> list[int]:
    """Axes of a sample with its channels last, in the order of one with its channels first."""
    return [rank - 1, *range(rank - 1)]


def channels_last(rank: int) -> list[int]:
    """Axes of a batch with its channels first, in the order of one with its channels last."""
    return [0, *range(2, rank), 1] if rank > 2 else list(range(rank))


def by_name(what: str, given: Any, names: Sequence[str], first: str | None = None) -> dict[str, Any]:
    """Values of several inputs or outputs by their names: a dict, a list in their order, or one alone. `first` is another name of the first."""
    if isinstance(given, Mapping):
        given = renamed(given, names, first)
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(f"{what} has `{unknown[0]}`, the model has {', '.join(names)}")
        return dict(given)
    if len(names) > 1:
        # A list of numbers is an array, but not where the model has several.
        if not isinstance(given, (list, tuple)) or len(given) != len(names):
            raise ValueError(f"{what}: the model has {len(names)} ({', '.join(names)}): give a list of as many, or a dict")
        return dict(zip(names, given))
    if isinstance(given, (list, tuple)) and len(given) == 1 and getattr(given[0], "ndim", 0) > 1:
        given = given[0]
    return {names[0]: given}


def renamed(given: Mapping[str, Any], names: Sequence[str], first: str | None) -> dict[str, Any]:
    """With the first of the names in place of what Keras calls it."""
    return {names[0] if name == first and name not in names else name: value for name, value in given.items()}


def rows(arrays: Iterable[np.ndarray]) -> int:
    """How many samples arrays have."""
    return len(next(iter(arrays)))


def part(entries: list[Entry], start: int | None, stop: int | None) -> list[Entry]:
    """Some of the samples, not copied."""
    return [(name, values[start:stop], dtype, axes) for name, values, dtype, axes in entries]


def taken(entries: list[Entry], indices: np.ndarray) -> list[Entry]:
    """Samples at these places."""
    return [(name, values[indices], dtype, axes) for name, values, dtype, axes in entries]


def is_batches(x: Any) -> bool:
    """Whether data is an iterable of batches, not arrays: a list is where it holds tuples of arrays."""
    if isinstance(x, list) and x and all(isinstance(batch, tuple) and batch and np.ndim(batch[0]) > 0 for batch in x[:1]):
        return True
    if isinstance(x, (np.ndarray, list, tuple, Mapping, str)) or hasattr(x, "__array__") or hasattr(x, "__dlpack__"):
        return False
    return hasattr(x, "__iter__") or hasattr(x, "__next__") or (hasattr(x, "__getitem__") and hasattr(x, "__len__"))


def length(batches: Any) -> int | None:
    """How many batches there are, where it is known."""
    try:
        count = len(batches)
    except TypeError:
        return None
    return count if count > 0 else None


def iterate(batches: Any) -> Iterator[Any]:
    """Begins to read batches. What has a length and places, as Keras's ``PyDataset``, is read by place."""
    if hasattr(batches, "__iter__"):
        return iter(batches)
    return (batches[i] for i in range(len(batches)))


def unpacked(batch: Any, *, needs_targets: bool, inputs: int = 1) -> tuple[Any, Any, Any]:
    """Samples, targets and weights of what an iterable gives, for a model of so many inputs."""
    if isinstance(batch, tuple):
        if len(batch) == 1:
            x, y, weight = batch[0], None, None
        elif len(batch) == 2:
            (x, y), weight = batch, None
        elif len(batch) == 3:
            x, y, weight = batch
        else:
            raise ValueError(f"a batch is (x, y) or (x, y, sample_weight), not a tuple of {len(batch)}")
    elif isinstance(batch, list) and (needs_targets or inputs == 1) and len(batch) in (2, 3):
        # As PyTorch's DataLoader gives them.
        x, y, weight = (*batch, None)[:3]
    else:
        x, y, weight = batch, None, None
    if needs_targets and y is None:
        raise ValueError("a batch must be (x, y) or (x, y, sample_weight)")
    return x, y, weight


def weights(sample_weight: Any, class_weight: Mapping[int, float] | None, labels: np.ndarray | None, count: int) -> np.ndarray | None:
    """The weight of each sample; none where all count alike."""
    if sample_weight is None and class_weight is None:
        return None
    result = np.ones(count, np.float32)
    if sample_weight is not None:
        given = array("sample_weight", sample_weight)
        if given.shape not in ((count,), (count, 1)):
            raise ValueError(f"sample_weight has the shape {given.shape}: give one number for each of the {count} samples")
        result = given.reshape(count).astype(np.float32)
        if not (np.isfinite(result).all() and (result >= 0).all()):
            raise ValueError("sample_weight has a number that is below 0 or not finite")
    if class_weight is not None:
        if labels is None or labels.ndim != 1:
            raise ValueError("class_weight needs one label for each sample")
        if not isinstance(class_weight, Mapping) or not all(isinstance(label, (int, np.integer)) for label in class_weight):
            raise TypeError(f"class_weight={class_weight!r} is not possible: give a dict of weights by the numbers of classes")
        by_class = np.ones(int(max(int(labels.max()), *class_weight)) + 1, np.float32)
        for label, weight in class_weight.items():
            if not (np.isfinite(weight) and weight >= 0) or int(label) < 0:
                raise ValueError(f"class_weight {{{label}: {weight}}} is not possible: classes and weights are 0 or more")
            by_class[int(label)] = weight
        result = result * by_class[labels]
    return result
