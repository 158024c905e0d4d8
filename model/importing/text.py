"""What an importer of an encoder-decoder is given to describe its text with, and what it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.config import ModelConfig
from model.importing.options import Options
from model.importing.source import SourceFolder
from model.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextSource:
    """A folder, its config.json, the configuration that was made of it, and what the user said of languages."""

    source: SourceFolder
    options: Options
    config: ModelConfig
    report: Callable[[str], None]
    source_languages: Sequence[str] = ()
    """Those to read; empty is all that the folder names."""
    target_languages: Sequence[str] = ()

    def file_options(self, name: str) -> Options:
        """The options of another JSON file of the folder, empty where there is none."""
        return self.source.options(self.source.transformer / name)


@dataclass(frozen=True)
class TextPart:
    """Tokenizers, and what the metadata says of languages, of the tokens around a text, and of decoding.

    `start_id` is what an output starts from, where the family's options do not say.
    """

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None
    """Of what the decoder writes, where it is not that of what the encoder reads."""
    task: str = "translate"
    metadata: dict[str, Any] = field(default_factory=dict)
