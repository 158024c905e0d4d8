"""One JSON file of options, read field by field; all that is wrong with it is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.importing.errors import ModelImportError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Their names of the activations that the model has -> ours."""


class Options:
    """The values of one file. A reader that finds a fault notes it and gives a stand-in; `check` raises for all.

    Defaults are those of the family's configuration class in `transformers`, as files leave out what is default.
    """

    def __init__(self, file: str, values: Mapping[str, Any], prefix: str = "") -> None:
        self.file, self._values, self._prefix = file, values, prefix
        self.problems: list[str] = []
        self.notes: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """The value as it stands, None where there is none."""
        return self._values.get(name)

    def integer(self, name: str, default: int | None = None, minimum: int = 0) -> int:
        """A whole number of at least `minimum`; without a default it must be there."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            self.refuse(name, value, f"it must be a whole number of at least {minimum}")
            return minimum
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number; without a default it must be there."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, value, "it must be a number")
            return 1.0 if default is None else default
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, value, "it must be true or false")
            return default
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object within the object; empty where there is none."""
        value = self._values.get(name) or {}
        if not isinstance(value, dict):
            self.refuse(name, value, "it must be an object")
            return {}
        return value

    def part(self, name: str) -> Options:
        """The object within the object, to be read in the same way; its problems are told with those of the whole."""
        part = Options(self.file, self.mapping(name), f"{self._prefix}{name}.")
        part.problems, part.notes = self.problems, self.notes
        return part

    def activation(self, name: str, default: str) -> str:
        """Our name of the activation."""
        value = self._values.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            self.refuse(name, value, f"allowed: {', '.join(ACTIVATIONS)}")
            return "relu"
        return ACTIVATIONS[value]

    def require(self, name: str, *allowed: object) -> None:
        """The model works in one of the ways `allowed` only; a file that says nothing means one of them."""
        value = self._values.get(name)
        if name in self._values and value not in allowed:
            self.refuse(name, value, f"allowed: {', '.join(map(repr, allowed))}")

    def refuse(self, name: str, value: object, allowed: str) -> None:
        """Note that the value cannot be used."""
        shown = "missing" if value is None and name not in self._values else repr(value)
        self.problems.append(f"{self._prefix}{name} is {shown}, {allowed}")

    def note(self, text: str) -> None:
        """Keep what the user should know, though it is no fault."""
        self.notes.append(text)

    def check(self) -> None:
        """Raise ModelImportError with everything noted, if anything was."""
        if self.problems:
            raise ModelImportError(f"{self.file}: {'; '.join(self.problems)}")
