"""What a comparison with PyTorch counts, and what each precision may differ by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from export.session import Array, GraphSession


class ParityError(ValueError):
    """A precision that differs too much from the PyTorch model; the message lists every failure."""


@dataclass(frozen=True)
class Tolerance:
    """What a precision may differ by, in logits or in the numbers of an embedding.

    `largest` bounds the largest difference, relative to the largest number where that exceeds 1; `error` bounds the
    root mean square of the differences relative to that of the numbers; `agreement` is the smallest allowed share of
    positions at which the best token is the same. Random weights give nearly equal logits, so agreement is asked of
    float32 alone; how much a trained model loses is what its score tells.
    """

    largest: float
    error: float
    agreement: float


TOLERANCES = {
    "fp32": Tolerance(largest=1e-4, error=1e-5, agreement=1.0),
    "fp16": Tolerance(largest=0.05, error=0.01, agreement=0.0),
    # Three bits fewer than float16; not yet measured by anything that computes it.
    "bf16": Tolerance(largest=0.4, error=0.08, agreement=0.0),
    "int8": Tolerance(largest=1.0, error=0.25, agreement=0.0),
    # Random weights lose most: twelve layers of them come to 0.65. What computes something else has 1.4.
    "int4": Tolerance(largest=1.0, error=0.8, agreement=0.0),
}


@dataclass
class Differences:
    """What was seen over all positions."""

    largest: float = 0.0
    largest_number: float = 0.0
    squares: float = 0.0
    number_squares: float = 0.0
    agreed: int = 0
    positions: int = 0
    count: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, expected: Array, found: Array) -> None:
        difference = np.abs(found.astype(np.float64) - expected)
        self.largest = max(self.largest, float(difference.max()))
        self.largest_number = max(self.largest_number, float(np.abs(expected).max()))
        self.squares += float((difference**2).sum())
        self.number_squares += float(((expected - expected.mean(axis=-1, keepdims=True)) ** 2).sum())
        self.agreed += int((found.argmax(-1) == expected.argmax(-1)).sum())
        self.positions += len(expected)
        self.count += difference.size

    @property
    def error(self) -> float:
        return (self.squares / self.number_squares) ** 0.5 if self.number_squares else 0.0


def rounded(value: float) -> float:
    """Three digits: the report is part of a reproducible file, and the last bits of a sum are not."""
    return float(f"{value:.3g}")


def interface_problems(name: str, session: GraphSession) -> list[str]:
    """Inputs and outputs that the graph `name` lacks, has too many, or declares otherwise than the manifest."""
    problems = []
    for kind, wanted, found in zip(
        ("input", "output"), (session.spec.inputs, session.spec.outputs), session.tensor_specs(), strict=True
    ):
        expected = {spec.name: spec for spec in wanted}
        problems += [f"{name} lacks the {kind} {key}" for key in expected if key not in found]
        problems += [f"{name} has the unknown {kind} {key}" for key in found if key not in expected]
        problems += [
            f"{name}: {kind} {key} is {found[key].dtype}{found[key].shape}, declared {spec.dtype}{spec.shape}"
            for key, spec in expected.items()
            if key in found and found[key] != spec
        ]
    return problems


def check_values(seen: Differences, tolerance: Tolerance) -> None:
    """Enter into `seen.problems` what is out of tolerance."""
    largest = tolerance.largest * max(1.0, seen.largest_number)
    if not seen.largest <= largest:
        seen.problems.append(f"numbers differ by {seen.largest:.3g}, allowed {largest:.3g}")
    if not seen.error <= tolerance.error:
        seen.problems.append(f"the relative error is {seen.error:.3g}, allowed {tolerance.error:.3g}")
    if seen.agreed < tolerance.agreement * seen.positions:
        seen.problems.append(f"the best token is the same at {seen.agreed} of {seen.positions} positions")
