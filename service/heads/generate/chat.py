"""Conversations to prompts, by the Jinja template that came with the model.

Templates are written for `transformers` (https://huggingface.co/docs/transformers/chat_templating): what it gives them
besides the messages is `raise_exception`, `strftime_now`, the filter `tojson` without HTML escapes, loop controls, and
the special tokens by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from service.errors import InputError, StartupError
from service.heads.generate.model import GenerationModel
from service.heads.generate.prompts import check_prompt_length
from service.heads.generate.tasks import Prompt
from service.heads.generate.template_sandbox import TemplateSandbox, render

Message = Mapping[str, Any]

_PARAMETER = "messages"
_PRIVATE_USE = range(0xF0000, 0xFFFFE)  # Unicode's Supplementary Private Use Area-A


class ChatTemplate:
    """The template of one model; StartupError where it cannot be read.

    Only the template may write special tokens: their spellings in a message stay text, so that no message can speak in
    another's name.
    """

    def __init__(self, source: str, model: GenerationModel) -> None:
        self._model = model
        self._reader = model.tokenizer.reading_special_tokens
        specials = {model.tokenizer.token(token_id): token_id for token_id in model.tokenizer.special_ids}
        self._specials = dict(sorted(specials.items(), key=lambda item: -len(item[0])))
        self._spellings = re.compile(f"({'|'.join(map(re.escape, self._specials)) or '(?!)'})")
        try:
            self._template = TemplateSandbox().from_string(source)
        except TemplateSyntaxError as error:
            raise StartupError(
                f"the chat template of the model {model.name} cannot be read, line {error.lineno}: {error.message}"
            ) from error

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """The prompt after which the assistant speaks; each message has a `role` and a `content`, which is a text.

        Raises InputError for messages that the template refuses, or that leave no room for an answer.
        """
        contents = [message["content"] for message in messages]
        if not any(self._spellings.search(content) for content in contents):
            text = self._render(messages)
            # As a list, because encoding a single text does not release the GIL.
            (ids,) = self._reader.encode_batch([text])
        else:
            text, ids = self._render_apart(messages, contents)
        check_prompt_length(ids, self._model, _PARAMETER)
        return Prompt(token_ids=tuple(ids), text=text)

    def _render_apart(self, messages: Sequence[Message], contents: Sequence[str]) -> tuple[str, list[int]]:
        """The same where messages hold spellings of special tokens, which are hidden from the template's own."""
        taken = set().union(*contents)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in taken)
        marks = {spelling: next(free) for spelling in self._specials}
        spellings = {mark: spelling for spelling, mark in marks.items()}
        hidden = [
            {**message, "content": self._spellings.sub(lambda found: marks[found[1]], message["content"])}
            for message in messages
        ]
        ids: list[int] = []
        parts = []
        for part in self._spellings.split(self._render(hidden)):
            if part in self._specials:
                ids.append(self._specials[part])
                parts.append(part)
            elif part:
                parts.append("".join(spellings.get(character, character) for character in part))
                ids += self._model.tokenizer.encode_batch([parts[-1]])[0]
        return "".join(parts), ids

    def _render(self, messages: Sequence[Message]) -> str:
        try:
            return render(
                self._template,
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._model.special_tokens,
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            # A template is a program, which may fail on any message.
            raise InputError(
                f"the chat template of the model {self._model.name} refuses these messages: {error}",
                parameter=_PARAMETER,
            ) from error
