"""huggingface_hub's client with the address of the server alone, as its users give it."""

from __future__ import annotations

from collections.abc import Iterator

import huggingface_hub.errors
import numpy as np
import pytest
from huggingface_hub import InferenceClient

from tests.service.all_heads import All, running_all
from tests.service.generation_fakes import SAID


@pytest.fixture(scope="module")
def served() -> Iterator[All]:
    with running_all(root_task="embed") as found:
        yield found


@pytest.fixture
def hub(served: All) -> InferenceClient:
    return InferenceClient(model=served.url)


def test_text_generation(hub: InferenceClient) -> None:
    """Without any parameter its body could be for other tasks as well, and is for the server's `root_task`."""
    assert hub.text_generation("a b", return_full_text=False) == SAID
    found = hub.text_generation("a b", details=True, max_new_tokens=2, return_full_text=False)
    assert found.details is not None
    assert (found.generated_text, found.details.generated_tokens) == (" one two", 2)
    assert "".join(hub.text_generation("a b", stream=True, max_new_tokens=3)) == SAID


def test_chat_completion(hub: InferenceClient) -> None:
    answer = hub.chat_completion([{"role": "user", "content": "a b"}])
    assert answer.choices[0].message.content == SAID
    assert answer.system_fingerprint


def test_feature_extraction(served: All, hub: InferenceClient) -> None:
    expected = served.post("/embed", inputs="the house").json()
    for found in (hub.feature_extraction("the house", normalize=True), hub.feature_extraction("the house")):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sentence_similarity(hub: InferenceClient) -> None:
    scores = hub.sentence_similarity("the house", other_sentences=["the house", "a key"])
    assert scores[0] == pytest.approx(1)
    assert scores[1] < 0.99


def test_translation(hub: InferenceClient) -> None:
    assert hub.translation("Hello.", src_lang="en", tgt_lang="de").translation_text == "HELLO."


def test_a_task_that_is_not_there(hub: InferenceClient) -> None:
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError, match="404"):
        hub.zero_shot_classification("a b", candidate_labels=["a"])
