"""One JSON file of options, read field by field; all faults are reported together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.checkpoint import CheckpointError

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


class ModelImportError(CheckpointError):
    """A model that cannot be imported; the message lists all faults and what to do."""


class Options:
    """The values of one file. A reader that finds a fault notes it and gives a stand-in; `check` raises for all.

    Defaults are those of the family's configuration class in `transformers`, as files leave out what is default.
    """

    def __init__(self, file: str, values: Mapping[str, Any], prefix: str = "") -> None:
        self.file, self._values, self._prefix = file, values, prefix
        self._read: set[str] = set()
        self.problems: list[str] = []
        self.notes: list[str] = []

    def __contains__(self, name: str) -> bool:
        self._read.add(name)
        return name in self._values

    def _take(self, name: str, default: object = None) -> Any:
        self._read.add(name)
        return self._values.get(name, default)

    @property
    def unread(self) -> list[str]:
        """The names of values that were not read."""
        return [name for name in self._values if name not in self._read]

    def get(self, name: str) -> Any:
        """The value as it stands, None where there is none."""
        return self._take(name)

    def integer(self, name: str, default: int | None = None, minimum: int = 0) -> int:
        """A whole number of at least `minimum`; without a default it must be there."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            self.refuse(name, value, f"it must be a whole number of at least {minimum}")
            return minimum
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number; without a default it must be there."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, value, "it must be a number")
            return 1.0 if default is None else default
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            self.refuse(name, value, "it must be true or false")
            return default
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object within the object; empty where there is none."""
        value = self._take(name) or {}
        if not isinstance(value, dict):
            self.refuse(name, value, "it must be an object")
            return {}
        return value

    def part(self, name: str) -> Options:
        """The object within the object, read in the same way; its problems are reported with those of the whole."""
        part = Options(self.file, self.mapping(name), f"{self._prefix}{name}.")
        part.problems, part.notes = self.problems, self.notes
        return part

    def activation(self, name: str, default: str) -> str:
        """Our name of the activation."""
        value = self._take(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            self.refuse(name, value, f"allowed: {', '.join(ACTIVATIONS)}")
            return "relu"
        return ACTIVATIONS[value]

    def require(self, name: str, *allowed: object) -> None:
        """The model works in one of the ways `allowed` only; a file that says nothing means one of them."""
        value = self._take(name)
        if name in self._values and value not in allowed:
            self.refuse(name, value, f"allowed: {', '.join(map(repr, allowed))}")

    def refuse(self, name: str, value: object, allowed: str) -> None:
        """Note that the value cannot be used."""
        shown = "missing" if value is None and name not in self._values else repr(value)
        self.problems.append(f"{self._prefix}{name} is {shown}, {allowed}")

    def note(self, text: str) -> None:
        """Keep a message for the user that is no fault."""
        self.notes.append(text)

    def check(self) -> None:
        """Raise ModelImportError with everything noted, if anything was."""
        if self.problems:
            raise ModelImportError(f"{self.file}: {'; '.join(self.problems)}")


_NO_ARITHMETIC_TEXT = """
    _name_or_path name_or_path architectures model_type torch_dtype dtype transformers_version auto_map
    use_cache return_dict output_attentions output_hidden_states output_past gradient_checkpointing
    pretraining_tp license initializer_range initializer_factor init_std id2label label2id num_labels
    problem_type task_specific_params attention_probs_dropout_prob attention_dropout activation_dropout
    classifier_dropout classif_dropout dropout hidden_dropout_prob attn_pdrop embd_pdrop encoder_layerdrop
    decoder_layerdrop layerdrop tie_word_embeddings bos_token_id eos_token_id pad_token_id sep_token_id
    unk_token_id decoder_start_token_id num_hidden_layers num_beams max_length min_length length_penalty
    early_stopping no_repeat_ngram_size bad_words_ids do_sample forced_bos_token_id forced_eos_token_id
    temperature top_k top_p
"""
_NO_ARITHMETIC = frozenset(_NO_ARITHMETIC_TEXT.split())
"""Options that say what a model is called, how it was trained, or how its tokens are chosen."""


def refuse_unknown_code(options: Options) -> None:
    """Follow `auto_map`, which names a repository's own code, only where the options leave it nothing to say.

    That code is never run. Where every option is one that the family reads, the model is the family's; where one is
    not, the code may compute anything by it.
    """
    if not options.get("auto_map"):
        return
    for name in options.unread:
        if name not in _NO_ARITHMETIC:
            options.refuse(
                name, options.get(name), "which only the repository's own code (auto_map) knows: not imported"
            )
    options.check()
    options.note("the repository's own code (auto_map) is left out: its options are those of the family")


def token_ids(options: Options, name: str) -> list[int]:
    """One id or several, as the field has them; none where it is missing, null or -1."""
    value = options.get(name)
    values = value if isinstance(value, list) else [value]
    ids = [item for item in values if item is not None and item != -1]
    if any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in ids):
        options.refuse(name, value, "it must be a token id, or a list of them")
        return []
    return ids


def end_fields(options: Options) -> dict[str, int]:
    """bos_id, eos_id and pad_id of ModelConfig: each needs a value, so a missing one is taken from another.

    The end tokens of generation are in the "generation" section of metadata.json, which can name several or none.
    """
    begins, ends, pads = (token_ids(options, f"{name}_token_id")[:1] for name in ("bos", "eos", "pad"))
    return {
        "bos_id": (begins or ends or [0])[0],
        "eos_id": (ends or begins or [0])[0],
        "pad_id": (pads or ends or begins or [0])[0],
    }
