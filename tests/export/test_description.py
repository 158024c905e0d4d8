"""From a checkpoint's metadata to the head sections of its bundle."""

from __future__ import annotations

from typing import Any

import pytest

from export.description import ExportError, describe
from model.checkpoint import Checkpoint
from model.tokenizer import Tokenizer
from model.translation_format import OWN_FORMAT
from tests.export.conftest import METADATA
from tests.export.models import make_encoder, make_model


def encoder_decoder(tokenizer: Tokenizer, metadata: dict[str, Any]) -> Checkpoint:
    return Checkpoint(make_model(vocab_size=tokenizer.vocab_size), tokenizer, metadata)


def test_what_the_metadata_leaves_out_is_filled_in(tokenizer: Tokenizer) -> None:
    content = describe(encoder_decoder(tokenizer, METADATA), 8)
    head = content.heads.translate
    assert head is not None
    assert list(content.heads.present()) == ["translate"]
    assert head.graphs == {"encoder": "encoder", "decoder": "decoder"}
    assert (head.limits.max_source_tokens, head.limits.max_target_tokens) == (32, 32)
    assert (head.format, head.decoding.num_candidates, content.num_candidates) == (OWN_FORMAT, 8, 8)
    assert content.card == {"num_parameters": content.checkpoint.model.num_parameters(), "licence": "CC-BY-2.0"}
    assert content.training == {"bleu": 12.5}


def test_the_format_and_the_decoding_of_a_family_are_taken_over(tokenizer: Tokenizer) -> None:
    own = {
        "format": {"source_suffix": ["</s>"], "decoder_start": ["<pad>"], "spellings": {"de": "deu"}},
        "decoding": {"beam_rules": "huggingface", "beam_size": 5, "suppressed_token_ids": [0], "max_new_tokens": 9},
    }
    head = describe(encoder_decoder(tokenizer, METADATA | own), 10).heads.translate
    assert head is not None
    assert (head.format.source_prefix, head.format.decoder_start, head.format.spellings["de"]) == (
        (),
        ("<pad>",),
        "deu",
    )
    assert (head.decoding.beam_rules, head.decoding.beam_size, head.decoding.num_candidates) == ("huggingface", 5, 10)
    assert (head.decoding.suppressed_token_ids, head.decoding.max_new_tokens) == ((0,), 9)


def test_an_encoder_decoder_can_generate_and_have_two_heads(tokenizer: Tokenizer) -> None:
    languages = {"codes": ["en", "de"], "directions": [["en", "de"]]}
    sections = {"translate": {"languages": languages}, "generate": {"eos_token_ids": [2, 3]}}
    both = describe(encoder_decoder(tokenizer, {"heads": sections}), 4).heads
    assert list(both.present()) == ["translate", "generate"]
    assert both.generate is not None
    assert both.generate.graphs == {"encoder": "encoder", "decoder": "decoder"}
    assert (both.generate.eos_token_ids, both.generate.limits.max_source_tokens) == ((2, 3), 32)
    alone = describe(encoder_decoder(tokenizer, {"task": "generate"}), 4).heads
    assert alone.generate is not None
    assert alone.generate.eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "metadata.json has no task"),
        ({"task": "embed"}, "names the task 'embed', but .* is for the task 'translate' or 'generate'"),
        ({"task": "translate"}, r"translate\.languages"),
        (METADATA | {"decoding": {"forced_end_token_id": 10**9}}, "forced_end_token_id has 1000000000, the vocabulary"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(tokenizer: Tokenizer, metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        describe(encoder_decoder(tokenizer, metadata), 4)


def test_an_encoder_has_no_decoder(tokenizer: Tokenizer) -> None:
    with pytest.raises(ExportError, match="architecture 'encoder' is for the task 'embed'"):
        describe(Checkpoint(make_encoder(vocab_size=tokenizer.vocab_size), tokenizer, METADATA), 4)
