"""What is shown while a model trains."""

from __future__ import annotations

import sys
import time
from typing import Any, Mapping

_WIDTH = 20
# Seconds from one line to the next that replaces it.
_PAUSE = 0.1


def resolve(verbose: Any) -> int:
    """`auto` is a bar in a terminal and in a notebook, else a line for each epoch."""
    if verbose == "auto":
        is_live = "ipykernel" in sys.modules or bool(getattr(sys.stdout, "isatty", bool)())
        return 1 if is_live else 2
    if verbose in (0, 1, 2):
        return int(verbose)
    raise ValueError(f"verbose={verbose!r} is not possible: 0, 1, 2 or 'auto'")


def _number(value: Any) -> str:
    if isinstance(value, (int, float)):
        return f"{value:.4f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.2e}"
    return ""


def _words(values: Mapping[str, Any]) -> str:
    return "".join(f" - {name}: {_number(value)}" for name, value in values.items() if _number(value) and name != "lr")


class Progress:
    """A bar (verbose 1) or a line for each epoch (2), or nothing (0)."""

    def __init__(self, verbose: int) -> None:
        self._verbose = verbose
        self._start = self._shown = 0.0
        self._step, self._steps = 0, None
        self._longest = 0

    def epoch_begin(self, epoch: int, epochs: int) -> None:
        self._start = time.perf_counter()
        self._shown, self._longest = 0.0, 0
        if self._verbose and epochs > 1:
            print(f"Epoch {epoch + 1}/{epochs}", flush=True)

    def begin(self) -> None:
        self._start, self._shown, self._longest = time.perf_counter(), 0.0, 0

    def step(self, step: int, steps: int | None, values: Mapping[str, Any]) -> None:
        self._step, self._steps = step, steps
        now = time.perf_counter()
        if self._verbose == 1 and (now - self._shown >= _PAUSE):
            self._shown = now
            self._write(self._line(values), end="")

    def end(self, values: Mapping[str, Any]) -> None:
        if self._verbose == 1:
            self._write(self._line(values), end="\n")
        elif self._verbose == 2:
            print(self._line(values), flush=True)

    def _line(self, values: Mapping[str, Any]) -> str:
        seconds = time.perf_counter() - self._start
        of = "" if self._steps is None else f"/{self._steps}"
        bar = ""
        if self._verbose == 1 and self._steps:
            done = min(_WIDTH, _WIDTH * self._step // self._steps)
            bar = " [" + "=" * done + " " * (_WIDTH - done) + "]"
        each = f" {seconds / self._step * 1e3:.0f}ms/step" if self._step else ""
        return f"{self._step}{of}{bar} {seconds:.0f}s{each}{_words(values)}"

    def _write(self, line: str, end: str) -> None:
        # What a longer line left is blotted out.
        print("\r" + line.ljust(self._longest), end=end, flush=True)
        self._longest = max(self._longest, len(line))
