"""What a loaded model is, whatever its task: its tokenizer, its engines, and how the service runs them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from model.tokenizer import Tokenizer
from service.engine.core.types import EngineStats
from service.errors import InputError

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResultT = TypeVar("ResultT")
CompanionT = TypeVar("CompanionT")


class EngineControl(Protocol):
    """What the service needs of every engine, whatever it computes."""

    def stats(self) -> EngineStats: ...
    def start(self) -> None: ...
    def drain(self, timeout_seconds: float) -> bool:
        """Admit no more requests and wait for those admitted; False when the timeout came first."""
        ...

    def close(self) -> None: ...


class RequestEngine(EngineControl, Protocol[RequestT_contra, ResultT]):
    """An engine that answers requests as a whole: those of `service.engine`, or a stand-in in tests."""

    async def run(self, requests: Sequence[RequestT_contra]) -> list[ResultT]:
        """Results in the order of `requests`, all admitted or none; cancelling the coroutine cancels the work."""
        ...


class Companion(Protocol):
    """What a bundle holds beside its model, with an engine of its own. `label` tells its engine from the model's."""

    label: ClassVar[str]

    @property
    def engine(self) -> EngineControl: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel(ABC):
    """One model, ready to run: what the service needs of its manifest, its tokenizer and its engines."""

    task: ClassVar[str]
    """As the manifest spells it."""

    splits_inputs: ClassVar[bool] = False
    """Whether an input that is longer than the model's limit is split."""

    name: str
    tokenizer: Tokenizer
    engine: EngineControl
    precision: str
    device: str
    info: Mapping[str, Any] = field(default_factory=dict)
    """What GET /info adds for this model: sizes, revision, where the weights come from."""
    companions: tuple[Companion, ...] = ()
    loaded_at: int = field(default_factory=lambda: int(time.time()))
    """Seconds since the Unix epoch."""

    @property
    def engines(self) -> dict[str, EngineControl]:
        """All its engines, by names that no other model's have."""
        others = {f"{self.name}/{companion.label}": companion.engine for companion in self.companions}
        return {self.name: self.engine, **others}

    @property
    @abstractmethod
    def max_input_length(self) -> int:
        """The longest input of one request to the engine, in tokens."""

    @abstractmethod
    async def probe(self, deadline: float) -> None:
        """Run a minimal request, for GET /health; raises what the engine raises.

        `deadline` is on `time.monotonic()`'s clock.
        """

    def companion(self, kind: type[CompanionT]) -> CompanionT | None:
        """The companion of the class `kind`; None where the bundle has none."""
        return next((companion for companion in self.companions if isinstance(companion, kind)), None)

    def prompt(self, name: str | None) -> str:
        """The text that goes before an input under the prompt `name`, or by default; InputError where there is none."""
        if name is None:
            return ""
        raise InputError(
            f"Input validation error: `prompt_name` is set, but the model {self.name} is for the task {self.task} and "
            "has no prompts",
            parameter="prompt_name",
        )
