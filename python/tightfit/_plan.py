"""Plans and advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ._bytes import format_bytes


@dataclass(frozen=True, repr=False)
class Plan:
    """What a training takes, before anything runs. ``print(plan)`` shows it as the command ``tightfit plan`` does."""

    batch: int
    """Samples of a step."""
    budget_bytes: int | None
    """Bytes that may be on the device at once; ``None`` for no limit."""
    peak_bytes: int
    """Bytes that are on the device at once, at most."""
    unconstrained_peak_bytes: int
    """The same without a budget."""
    minimum_budget_bytes: int
    """The smallest budget that has a plan."""
    predicted_step_ms: float
    """Time of a step, from what ops cost on the device, or are typically."""
    unconstrained_step_ms: float
    """The same without a budget."""
    micro_batches: int
    """Parts that a batch is cut into."""
    micro_batch_sizes: list[int]
    parameters_bytes: int
    state_bytes: int
    """Of the optimizer."""
    host_bytes: int
    """What is moved to the host for a while."""
    recomputed: dict[str, Any] = field(default_factory=dict)
    """What is computed again in place of being kept: `tensors`, `bytes`, `step_ms`."""
    offloaded: dict[str, Any] = field(default_factory=dict)
    """What is moved to the host and back: `tensors`, `bytes`, `step_ms`."""
    device: str | None = None
    costs: str = ""
    """Where the time is from."""
    text: str = ""

    @property
    def fits(self) -> bool:
        """Whether it is within the budget: always, as what is not raises `InfeasibleError`."""
        return self.budget_bytes is None or self.peak_bytes <= self.budget_bytes

    @property
    def overhead(self) -> float:
        """The share of time that the budget costs."""
        return self.predicted_step_ms / self.unconstrained_step_ms - 1 if self.unconstrained_step_ms else 0.0

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Advice:
    """What may be done where a training does not fit. `remedies` are dicts with `name`, `peak_bytes`, `step_ms`, `fits`, `flags` of the command
    and `batch`."""

    budget_bytes: int
    as_it_is: dict[str, Any]
    """The training as other frameworks run it."""
    remedies: list[dict[str, Any]]
    unchanged: dict[str, Any] | None
    """The quickest that fits and changes nothing but the last bits."""
    cheapest: dict[str, Any] | None
    """The quickest of all that fits."""
    memory: dict[str, Any]
    """What the memory is: layers and the largest tensors."""

    @property
    def fits(self) -> bool:
        """Whether the training fits as it is."""
        return bool(self.as_it_is["fits"])

    def __repr__(self) -> str:
        rows = [("as it is", self.as_it_is), *((remedy["name"], remedy) for remedy in self.remedies)]
        width = max(len(name) for name, _ in rows)
        lines = [f"advice for a budget of {format_bytes(self.budget_bytes)}"]
        for name, row in rows:
            time = "" if row["step_ms"] is None else f"{row['step_ms']:10.1f} ms"
            fits = "fits" if row["fits"] else "does not fit"
            lines.append(f"  {name:<{width}}  {format_bytes(row['peak_bytes']):>10}  {fits:<12}{time}")
        best = self.unchanged or self.cheapest
        lines.append(f"best: {best['name']}" if best else "nothing fits")
        return "\n".join(lines)


def advice(found: dict[str, Any]) -> Advice:
    def remedy(given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is None:
            return None
        given = dict(given)
        step = given.pop("step_ns", None)
        return {**given, "step_ms": None if step is None else step / 1e6}

    return Advice(
        budget_bytes=found["budget_bytes"],
        as_it_is=remedy(found["as_it_is"]),
        remedies=[remedy(given) for given in found["remedies"]],
        unchanged=remedy(found["unchanged"]),
        cheapest=remedy(found["cheapest"]),
        memory=found["memory"],
    )
