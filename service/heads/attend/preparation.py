"""From texts to the tokens that a model reads, for each task. Plain functions, no waiting."""

from __future__ import annotations

from collections.abc import Sequence

from model.tokenizer import Tokenizer, TokenizerError
from service.engine.decode.types import Hypothesis
from service.errors import InputError
from service.heads.attend.report import Sequences
from service.heads.attend.selection import check_num_tokens
from service.heads.attend.support import AttentionSupport
from service.heads.attend.tokens import Token, TokenSequence, encoded_tokens, generated_tokens, special_token
from service.heads.embed.model import EmbeddingModel
from service.heads.generate.model import GenerationModel
from service.heads.translate.model import TranslationModel
from service.models.tokenization import MAX_CHARACTERS_PER_TOKEN


def check_characters(name: str, text: str, max_tokens: int) -> None:
    """Refuse a text that is too long however it is cut into tokens, before the work of cutting it."""
    limit = max_tokens * MAX_CHARACTERS_PER_TOKEN
    if len(text) > limit:
        raise InputError(f"`{name}` has {len(text)} characters, allowed: {limit}", parameter=name)


def read_source(model: TranslationModel, text: str, source: str, target: str, max_tokens: int) -> TokenSequence:
    """What the encoder reads to translate `text` from the language `source` into `target`, as one sentence."""
    check_characters("q", text, max_tokens)
    tokenizer, around = model.tokenizer, model.bound_format(source, target)
    text = around.text_prefix + text
    (encoding,) = tokenizer.encodings([text], add_special_tokens=False)
    prefix, suffix = (
        [special_token(tokenizer, token_id) for token_id in ids] for ids in (around.source_prefix, around.source_suffix)
    )
    sequence = TokenSequence((text,), (*prefix, *encoded_tokens(encoding, (text,)), *suffix))
    check_num_tokens("q", len(sequence), min(max_tokens, model.max_source_tokens))
    return sequence


def read_target(model: TranslationModel, support: AttentionSupport, text: str, max_tokens: int) -> Sequences:
    """The decoder's inputs when `text` is forced, and the token that each row chooses."""
    check_characters("target_text", text, max_tokens)
    (encoding,) = model.target_tokenizer.encodings([text], add_special_tokens=False)
    found = _after_begin(model.target_tokenizer, support, text, encoded_tokens(encoding, (text,)), is_finished=True)
    assert found.target is not None
    check_num_tokens("target_text", len(found.target), min(max_tokens, support.config.max_seq_len))
    return found


def read_translation(model: TranslationModel, support: AttentionSupport, best: Hypothesis) -> Sequences:
    """The same for what the model itself said."""
    text, tokens = generated_tokens(model.target_tokenizer, best.token_ids)
    return _after_begin(model.target_tokenizer, support, text, tokens, is_finished=best.finished)


def _after_begin(
    tokenizer: Tokenizer, support: AttentionSupport, text: str, tokens: Sequence[Token], *, is_finished: bool
) -> Sequences:
    begin = special_token(tokenizer, support.config.bos_id)
    end = special_token(tokenizer, support.config.eos_id) if is_finished else None
    return Sequences(target=TokenSequence((text,), (begin, *tokens)), predictions=(*tokens, end), text=text)


def read_texts(
    model: EmbeddingModel, texts: Sequence[str], prompt_name: str | None, max_tokens: int
) -> tuple[TokenSequence, tuple[int, ...] | None]:
    """What an encoder reads of one text, or of a pair, and the token types of a pair.

    The prompt of an embedding model goes before one text as it does in POST /embed; a pair has none.
    """
    limit = min(max_tokens, model.max_input_tokens)
    if len(texts) == 1:
        texts = [model.prompt(prompt_name) + texts[0]]
    elif prompt_name is not None:
        raise InputError("`prompt_name` is for one text, and `inputs` is a pair", parameter="prompt_name")
    for text in texts:
        check_characters("inputs", text, limit)
    (encoding,) = model.tokenizer.encodings([texts[0] if len(texts) == 1 else (texts[0], texts[1])])
    sequence = TokenSequence(tuple(texts), encoded_tokens(encoding, texts))
    check_num_tokens("inputs", len(sequence), limit)
    return sequence, tuple(encoding.type_ids) if len(texts) == 2 else None


def read_prompt(model: GenerationModel, text: str, max_new_tokens: int, max_tokens: int) -> Sequences:
    """What a decoder reads of a prompt. What it chooses after the last token is not known yet."""
    limit = min(max_tokens, model.max_total_tokens)
    check_characters("prompt", text, limit)
    (encoding,) = model.tokenizer.encodings([text])
    sequence = TokenSequence((text,), encoded_tokens(encoding, (text,)))
    if len(sequence) + max_new_tokens > limit:
        raise InputError(
            f"`prompt` has {len(sequence)} tokens, and `max_new_tokens` is {max_new_tokens}: together "
            f"{len(sequence) + max_new_tokens}, allowed: {limit}",
            parameter="prompt",
        )
    return Sequences(target=sequence, predictions=(*sequence.tokens[1:], None))


def continue_prompt(model: GenerationModel, prompt: Sequences, new_ids: Sequence[int], end_id: int | None) -> Sequences:
    """A prompt with what the model went on with, and the end token where it came to an end by itself."""
    assert prompt.target is not None
    (before,) = prompt.target.texts
    text, tokens = generated_tokens(model.tokenizer, new_ids, prompt.target.ids, before)
    everything = (*prompt.target.tokens, *tokens)
    end = None if end_id is None else _named(model.tokenizer, end_id)
    return Sequences(
        target=TokenSequence((text,), everything), predictions=(*everything[1:], end), text=text[len(before) :]
    )


def _named(tokenizer: Tokenizer, token_id: int) -> Token | None:
    try:
        return special_token(tokenizer, token_id)
    except TokenizerError:  # a model may end with an id beyond its vocabulary
        return None
