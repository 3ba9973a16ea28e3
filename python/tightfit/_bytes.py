"""Sizes as people write them."""

from __future__ import annotations

import operator
import re
from fractions import Fraction

_ADVICE = "write a size such as 8G, 64MiB or 1.5GB, a number of bytes, or auto for what the device has free"
_PREFIXES = ("", "k", "m", "g", "t")


def parse_bytes(size: str | int) -> int:
    """The number of bytes that ``"8GiB"``, ``"8G"`` (1024s), ``"1.5GB"`` (1000s) or a number stands for, as the command reads it.

    >>> parse_bytes("64MiB"), parse_bytes("1.5 kB"), parse_bytes(4096)
    (67108864, 1500, 4096)
    """
    if not isinstance(size, str):
        if isinstance(size, bool):
            raise ValueError(f"{size!r} is not a size: {_ADVICE}")
        try:
            bytes_ = operator.index(size)
        except TypeError:
            raise ValueError(f"{size!r} is not a size: {_ADVICE}") from None
        if not 0 < bytes_ < 2**64:
            raise ValueError(f"a size of {bytes_} bytes is not possible: {_ADVICE}")
        return bytes_
    found = re.fullmatch(r"\s*((?:[0-9_]+)?(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size, re.ASCII)
    digits = found.group(1).replace("_", "") if found else ""
    if not digits:
        raise ValueError(f"`{size}` is not a size: {_ADVICE}")
    unit = found.group(2).lower()
    unit = "b" if unit in ("byte", "bytes") else unit
    if unit.endswith("ib"):
        prefix, base = unit[:-2], 1024
    elif unit.endswith("b"):
        prefix, base = unit[:-1], 1000
    else:
        prefix, base = unit.removesuffix("i"), 1024
    if prefix not in _PREFIXES or (unit.startswith("i")):
        raise ValueError(f"`{found.group(2)}` is not a unit: {_ADVICE}")
    scale = base ** _PREFIXES.index(prefix)
    exact = Fraction(digits) * scale
    if scale == 1 and exact.denominator != 1:
        raise ValueError(f"`{size}` is not a whole number of bytes: {_ADVICE}")
    return parse_bytes(int(exact))


def format_bytes(size: int) -> str:
    """A size for people: ``format_bytes(1536)`` is ``"1.5 KiB"``."""
    if size < 1024:
        return f"{size} bytes"
    number = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        number /= 1024
        if number < 1024 or unit == "TiB":
            break
    return f"{number:.1f} {unit}"


def budget_settings(budget: str | int | None) -> dict:
    """What settings have of a budget."""
    if budget is None:
        return {}
    if isinstance(budget, str) and budget.strip().lower() == "auto":
        return {"auto_budget": True}
    return {"budget_bytes": parse_bytes(budget)}
