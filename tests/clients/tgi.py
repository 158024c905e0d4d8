"""What users of text_generation, TGI's Python client, call: run by its own environment with a server's URL.

Each function is a call; `test_environments.py` runs this file and holds every line that it prints.
"""

from __future__ import annotations

import asyncio
import sys

from text_generation import AsyncClient, Client
from text_generation.errors import NotFoundError, ValidationError
from text_generation.types import FinishReason, InputToken

from tests.clients.running import refuses, run

SAID = " one two three"


class Calls:
    """The calls of one client; a method is one line of the table of docs/compatibility.md."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)

    def generate(self) -> None:
        response = self.client.generate("a b", max_new_tokens=1, decoder_input_details=True)
        assert response.generated_text == " one"
        assert response.details.finish_reason == FinishReason.Length
        assert response.details.generated_tokens == 1
        assert response.details.seed is None
        assert isinstance(response.details.prefill[0], InputToken)
        assert response.details.prefill[0].logprob is None
        assert response.details.tokens[0].text == " one"
        assert not response.details.tokens[0].special

    def generate_to_the_end(self) -> None:
        response = self.client.generate("a b")
        assert (response.generated_text, response.details.finish_reason) == (SAID, FinishReason.EndOfSequenceToken)

    def generate_return_full_text(self) -> None:
        assert self.client.generate("a b", return_full_text=True).generated_text == "a b" + SAID

    def generate_stop_sequences(self) -> None:
        response = self.client.generate("a b", stop_sequences=["two"])
        assert (response.generated_text, response.details.finish_reason) == (" one two", FinishReason.StopSequence)

    def generate_sampled_with_seed(self) -> None:
        response = self.client.generate(
            "a b", do_sample=True, temperature=0.5, top_k=5, top_p=0.9, typical_p=0.9, seed=3
        )
        assert response.details.seed == 3

    def generate_best_of(self) -> None:
        response = self.client.generate("a b", max_new_tokens=1, best_of=2, do_sample=True, decoder_input_details=True)
        assert response.details.seed is not None
        assert response.details.best_of_sequences is not None
        assert len(response.details.best_of_sequences) == 1
        assert response.details.best_of_sequences[0].seed is not None

    def generate_penalties_and_truncate(self) -> None:
        self.client.generate("a b c", repetition_penalty=1.2, frequency_penalty=0.5, truncate=2)

    def generate_top_n_tokens(self) -> None:
        response = self.client.generate("a b", max_new_tokens=2, top_n_tokens=3)
        assert response.details.top_tokens is not None
        assert [len(tokens) for tokens in response.details.top_tokens] == [3, 3]

    def generate_not_found(self) -> None:
        with refuses(NotFoundError):
            Client(f"{self.url}/nothing").generate("a b")

    def generate_validation_error(self) -> None:
        with refuses(ValidationError):
            self.client.generate("a b", max_new_tokens=10_000)

    def generate_stream(self) -> None:
        responses = list(self.client.generate_stream("a b", max_new_tokens=1))
        assert len(responses) == 1
        (response,) = responses
        assert (response.generated_text, response.token.text) == (" one", " one")
        assert response.details is not None
        assert response.details.finish_reason == FinishReason.Length
        assert (response.details.generated_tokens, response.details.seed) == (1, None)

    def generate_stream_to_the_end(self) -> None:
        texts = [response.token.text for response in self.client.generate_stream("a b") if not response.token.special]
        assert "".join(texts) == SAID

    def generate_stream_not_found(self) -> None:
        with refuses(NotFoundError):
            list(Client(f"{self.url}/nothing").generate_stream("a b"))

    def generate_stream_validation_error(self) -> None:
        with refuses(ValidationError):
            list(self.client.generate_stream("a b", max_new_tokens=10_000))

    def chat(self) -> None:
        answer = self.client.chat([{"role": "user", "content": "a b"}], max_tokens=40, seed=1)
        assert answer.choices[0].message.content == SAID
        assert answer.system_fingerprint

    def async_generate(self) -> None:
        response = asyncio.run(AsyncClient(self.url).generate("a b", max_new_tokens=1, decoder_input_details=True))
        assert (response.generated_text, len(response.details.tokens)) == (" one", 1)

    def async_generate_best_of(self) -> None:
        call = AsyncClient(self.url).generate("a b", max_new_tokens=1, best_of=2, do_sample=True)
        assert asyncio.run(call).details.best_of_sequences is not None

    def async_generate_not_found(self) -> None:
        with refuses(NotFoundError):
            asyncio.run(AsyncClient(f"{self.url}/nothing").generate("a b"))

    def async_generate_validation_error(self) -> None:
        with refuses(ValidationError):
            asyncio.run(AsyncClient(self.url).generate("a b", max_new_tokens=10_000))

    def async_generate_stream(self) -> None:
        async def read() -> list[str]:
            return [
                response.token.text async for response in AsyncClient(self.url).generate_stream("a b", max_new_tokens=1)
            ]

        assert asyncio.run(read()) == [" one"]

    def async_generate_stream_validation_error(self) -> None:
        async def read() -> None:
            async for _ in AsyncClient(self.url).generate_stream("a b", max_new_tokens=10_000):
                raise AssertionError("nothing comes")

        with refuses(ValidationError):
            asyncio.run(read())

    def async_chat(self) -> None:
        answer = asyncio.run(AsyncClient(self.url).chat([{"role": "user", "content": "a b"}]))
        assert answer.choices[0].message.content == SAID


if __name__ == "__main__":
    run(Calls(sys.argv[1]))
