"""Text to token ids and back, through Hugging Face `tokenizers`; free of torch, because the service imports it.

A `tokenizer.json` holds all that a tokenizer does, so nothing else is saved. Byte-pair encoding (Sennrich et al. 2016,
https://arxiv.org/abs/1508.07909) falls back to bytes for characters that it has not seen, so no text is lost to <unk>;
WordPiece (Schuster and Nakajima 2012) is what BERT uses.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK)
"""Always the first four, so their ids are 0 to 3."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PANIC = "PanicException"
"""The class of Rust's panics in Python, which no module exports."""

_PROBES = ("a", "A1 ", " ", "0", ".", "\n", "\u00e4", "\u4e00")
_PROBE_LENGTH = 300
"""A character repeated so often, with another one behind, shows expressions with exponential backtracking."""

_WORD_START = "▁"
_BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
_MAX_ALPHABET = 400
"""Characters with a token of their own; rarer ones are spelled in bytes."""

_SHORT_CHARACTERS = 500
"""Up to this length one text is encoded without releasing the GIL, because acquiring it again takes longer."""


class TokenizerError(ValueError):
    """A tokenizer that cannot be read, or a token that it does not have."""


class TextCutError(TokenizerError):
    """A text that the tokenizer's own rules cannot cut into tokens."""


def _no_panic(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function` with the library's panics as TextCutError; they derive from BaseException.

    A regular expression of the file that backtracks too much ends so.
    """

    @functools.wraps(function)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise TextCutError(f"the tokenizer cannot cut this text into tokens: {error}") from None

    return guarded


def language_tag(code: str) -> str:
    """The special token that opens a source text and names the language wanted: 'de' -> '<2de>'.

    After Johnson et al. 2017, https://arxiv.org/abs/1611.04558.
    """
    return f"<2{code}>"


class Tokenizer:
    """A tokenizer file. Texts are encoded literally; special tokens are added by the caller."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        # A user who types "</s>" means those four characters; the ids of special tokens are only ever added by code.
        # The file has no place for this switch, so it is set on every tokenizer.
        self._backend.encode_special_tokens = True
        # A file may ask for these too, which are left to the caller as well.
        self._backend.no_truncation()
        self._backend.no_padding()

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The library's own tokenizer."""
        return self._backend

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a `tokenizer.json`; TokenizerError where there is none."""
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TokenizerError(f"cannot read the tokenizer {path}: {error.strerror}") from error
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise TokenizerError(f"{path} is not a tokenizer.json: {error}") from error
        return cls(backend)

    def save(self, path: Path) -> None:
        """Write the `tokenizer.json`."""
        path.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The text of the `tokenizer.json`."""
        return f"{self._backend.to_str(pretty=True)}\n"

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones too."""
        return self._backend.get_vocab_size()

    def token_id(self, token: str) -> int:
        """The id of one token; TokenizerError names a token that is not in the vocabulary."""
        token_id = self._backend.token_to_id(token)
        if token_id is None:
            raise TokenizerError(f"the tokenizer has no token {token!r}")
        return token_id

    def token(self, token_id: int) -> str:
        """The token of one id; TokenizerError where there is none."""
        token = self._backend.id_to_token(token_id)
        if token is None:
            allowed = f"allowed: 0 to {self.vocab_size - 1}"
            raise TokenizerError(f"the tokenizer has no token with the id {token_id}, {allowed}")
        return token

    def check(self) -> None:
        """TextCutError where the file's rules fail on texts that are merely monotonous."""
        for probe in _PROBES:
            self.encode(probe * _PROBE_LENGTH + "\0")

    @property
    def largest_id(self) -> int:
        """The largest id that a text can become, special tokens that the file adds included; -1 without any."""
        added = (token_id for given in ("", ("", "")) for token_id in self.encodings([given])[0].ids)
        return max((*self._backend.get_vocab().values(), *added), default=-1)

    @_no_panic
    def encode(self, text: str) -> list[int]:
        """Token ids of the text alone; a special token's spelling inside it is text like any other.

        Byte-pair encoding keeps every character (in Unicode's NFC) but one leading space, which each text is given.
        """
        return self._backend.encode(text, add_special_tokens=False).ids

    @_no_panic
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        if len(texts) == 1 and len(texts[0]) <= _SHORT_CHARACTERS:
            return [self.encode(texts[0])]
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    @_no_panic
    def encodings(
        self,
        texts: Sequence[str | tuple[str, str]],
        add_special_tokens: bool = True,
        *,
        with_offsets: bool = True,
    ) -> list[tokenizers.Encoding]:
        """Each text with its ids, tokens, character offsets and special tokens, those that the file itself adds.

        Offsets take a fifth of the time: `with_offsets` False says that they are not needed, and they may be missing.
        """
        if len(texts) == 1 and isinstance(text := texts[0], str) and len(text) <= _SHORT_CHARACTERS:
            return [self._backend.encode(text, add_special_tokens=add_special_tokens)]
        encode = self._backend.encode_batch if with_offsets else self._backend.encode_batch_fast
        return encode(list(texts), add_special_tokens=add_special_tokens)

    @_no_panic
    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`."""
        return self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    @property
    def num_special_tokens(self) -> int:
        """How many tokens the file itself adds to each text."""
        return self._backend.num_special_tokens_to_add(is_pair=False)

    @functools.cached_property
    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that the file itself puts before each text, and those that it puts after it."""
        (encoding,) = self.encodings(["a"])
        marks = list(encoding.special_tokens_mask)
        num_before = marks.index(0) if 0 in marks else len(marks)
        num_after = marks[::-1].index(0) if 0 in marks else 0
        return tuple(encoding.ids[:num_before]), tuple(encoding.ids[len(marks) - num_after :])

    def with_end(self) -> Tokenizer:
        """A copy whose file adds the end `</s>` to each text: what an encoder reads to embed."""
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        end = (EOS, self.token_id(EOS))
        backend.post_processor = processors.TemplateProcessing(single=f"$A {EOS}", special_tokens=[end])
        return Tokenizer(backend)

    @functools.cached_property
    def reading_special_tokens(self) -> Tokenizer:
        """A copy to which a special token's spelling in a text is that token: for prompts, and what templates write."""
        copy = Tokenizer(tokenizers.Tokenizer.from_str(self._backend.to_str()))
        copy._backend.encode_special_tokens = False
        return copy

    @functools.cached_property
    def decoder_kinds(self) -> frozenset[str]:
        """The steps that make text of tokens, as the file names them: "ByteLevel", "ByteFallback" and so on."""
        if self._backend.decoder is None:
            return frozenset()
        decoder = json.loads(self._backend.decoder.__getstate__())
        return frozenset(step["type"] for step in decoder.get("decoders", [decoder]))

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of the special tokens."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)


def train(
    texts: Iterable[str],
    vocab_size: int,
    kind: Literal["bpe", "wordpiece"] = "bpe",
    extra_tokens: Sequence[str] = (),
) -> Tokenizer:
    """Learn at most `vocab_size` tokens from `texts`; `extra_tokens` (language tags) follow the special tokens."""
    if kind not in ("bpe", "wordpiece"):
        raise TokenizerError(f"tokenizer kind is {kind!r}, allowed: bpe, wordpiece")
    special_tokens = [*SPECIAL_TOKENS, *extra_tokens]
    smallest = len(special_tokens) + (len(_BYTE_TOKENS) if kind == "bpe" else 0)
    if vocab_size <= smallest:
        raise TokenizerError(
            f"vocab_size is {vocab_size}, it must be above {smallest}: the special and byte tokens alone"
        )
    backend, trainer = (_bpe if kind == "bpe" else _wordpiece)(vocab_size, special_tokens)
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(_with_ordinary_byte_tokens(backend))


def _with_ordinary_byte_tokens(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    # The trainer takes byte tokens only as special ones, which decoding would skip; byte fallback needs ordinary ones.
    description = json.loads(backend.to_str())
    description["added_tokens"] = [t for t in description["added_tokens"] if t["content"] not in _BYTE_TOKENS]
    return tokenizers.Tokenizer.from_str(json.dumps(description))


def _bpe(vocab_size: int, special_tokens: list[str]) -> tuple[tokenizers.Tokenizer, trainers.Trainer]:
    backend = tokenizers.Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True))
    backend.normalizer = normalizers.NFC()
    # Line feeds, punctuation and digits stand alone: "dog." and "dog" share a token, and any number can be copied.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement=_WORD_START, prepend_scheme="always"),
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Punctuation(behavior="isolated"),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_WORD_START, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*special_tokens, *_BYTE_TOKENS],
        limit_alphabet=_MAX_ALPHABET,
        show_progress=False,
    )
    return backend, trainer


def _wordpiece(vocab_size: int, special_tokens: list[str]) -> tuple[tokenizers.Tokenizer, trainers.Trainer]:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=UNK))
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=special_tokens, show_progress=False)
    return backend, trainer
