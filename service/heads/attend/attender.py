"""From a request to a report: choose the model, tokenize, translate or continue where wanted, look, aggregate, align.

Knows no HTTP. Sizes are checked as soon as they are known, and always before a map is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.tokenizer import EOS, language_tag
from service.engine.decode.types import DecodingOptions, DecodingRequest
from service.engine.encode.attention import AttentionRequest, AttentionResult
from service.errors import InputError
from service.heads.attend.preparation import (
    continue_prompt,
    read_prompt,
    read_source,
    read_target,
    read_texts,
    read_translation,
)
from service.heads.attend.report import AttentionReport, Sequences, build_report, check_maps
from service.heads.attend.selection import (
    Outline,
    Selection,
    check_num_tokens,
    check_num_values,
    select,
)
from service.heads.attend.support import AttentionSupport, NoAttentionError
from service.heads.attend.task import AttentionTask, DecoderInput, EncoderInput, TranslationInput
from service.heads.attend.tokens import TokenSequence
from service.heads.attend.word_alignment import (
    AlignmentSetting,
    Direction,
    WordAlignment,
    align,
    choose_setting,
)
from service.heads.embed.model import EmbeddingModel
from service.heads.generate.model import GenerationModel
from service.heads.translate.job import decoding_options
from service.heads.translate.languages import AUTO, choose_translator, language_name
from service.heads.translate.model import TranslationModel
from service.heads.translate.translator import Translator
from service.http.records import RequestRecord
from service.models.base import LoadedModel
from service.settings import Settings
from service.workers import WorkerPool


@dataclass(frozen=True, slots=True)
class _Look:
    """A model with what is to be shown of it."""

    model: LoadedModel
    support: AttentionSupport
    selection: Selection
    setting: AlignmentSetting | None


class Attender:
    """Computes the attention maps that tasks ask for."""

    def __init__(
        self,
        settings: Settings,
        translator: Translator,
        tokenization: WorkerPool,
        rendering: WorkerPool,
    ) -> None:
        self._settings = settings
        self._translator = translator
        self._tokenization = tokenization
        self._rendering = rendering

    @property
    def rendering(self) -> WorkerPool:
        """Where answers are written and drawn."""
        return self._rendering

    async def attend(self, task: AttentionTask, record: RequestRecord) -> AttentionReport:
        """The maps of one input; their time and tokens are added to `record`.

        Raises InputError or another InvalidRequestError for what cannot be served, NoModelError, NoAttentionError,
        SlowdownError, ModelOutputError, or what the engines raise. Cancelling stops the work in the engines.
        """
        match task.input:
            case TranslationInput():
                record.charge(len(task.input.text) + len(task.input.target_text or ""))
                return await self._translate(task, task.input, record)
            case EncoderInput():
                record.charge(sum(map(len, task.input.texts)))
                return await self._encode(task, task.input, record)
            case DecoderInput():
                record.charge(len(task.input.prompt))
                return await self._continue(task, task.input, record)

    async def _translate(self, task: AttentionTask, given: TranslationInput, record: RequestRecord) -> AttentionReport:
        if given.source == AUTO:
            given = replace(given, source=await self._translator.detect_source(given.text, task.registry))
        model = choose_translator(task.registry, given.source, given.target, task.model_name)
        look = self._look(model, task)
        if look.setting is not None and look.setting.needs_backward:
            _check_backward(model, given, look.setting)
        limit = self._settings.max_attention_tokens
        source = await self._tokenization.run(
            len(given.text), lambda: read_source(model, given.text, given.source, given.target, limit)
        )
        if given.target_text is not None:
            text = given.target_text
            read = await self._tokenization.run(len(text), lambda: read_target(model, look.support, text, limit))
            said = replace(read, source=source)
        else:
            self._check(task, look, Sequences(source=source))
            said = await self._say(task, look, model, given, source, record)
        self._check(task, look, said)
        return await self._report(task, look, said, record, backward=given.source)

    async def _say(
        self,
        task: AttentionTask,
        look: _Look,
        model: TranslationModel,
        given: TranslationInput,
        source: TokenSequence,
        record: RequestRecord,
    ) -> Sequences:
        """The model's own translation, as one sentence."""
        options = decoding_options(given.search, model, len(source), self._settings)
        begin = model.prompt_ids(model.bound_format(given.source, given.target))
        request = DecodingRequest(source_ids=source.ids, prompt_ids=begin, options=options, deadline=task.deadline)
        (result,) = await model.engine.run([request])
        record.add(result, result.hypotheses)
        said = replace(read_translation(model, look.support, result.best), source=source)
        check_num_tokens("the translation", said.lengths()["target"], self._settings.max_attention_tokens)
        return said

    async def _encode(self, task: AttentionTask, given: EncoderInput, record: RequestRecord) -> AttentionReport:
        model = task.registry.choose(EmbeddingModel, task.model_name)
        look = self._look(model, task)
        limit = self._settings.max_attention_tokens
        source, types = await self._tokenization.run(
            sum(map(len, given.texts)), lambda: read_texts(model, given.texts, given.prompt_name, limit)
        )
        read = Sequences(source=source)
        self._check(task, look, read)
        # A model without token types gets none, although its tokenizer may give them.
        return await self._report(
            task, look, read, record, token_types=types if look.support.config.num_token_types > 1 else None
        )

    async def _continue(self, task: AttentionTask, given: DecoderInput, record: RequestRecord) -> AttentionReport:
        model = task.registry.choose(GenerationModel, task.model_name)
        look = self._look(model, task)
        limit = self._settings.max_attention_tokens
        read = await self._tokenization.run(
            len(given.prompt), lambda: read_prompt(model, given.prompt, given.max_new_tokens, limit)
        )
        self._check(task, look, read)
        if given.max_new_tokens:
            read = await self._go_on(task, model, read, given.max_new_tokens, record)
            self._check(task, look, read)
        return await self._report(task, look, read, record)

    async def _go_on(
        self,
        task: AttentionTask,
        model: GenerationModel,
        prompt: Sequences,
        max_new_tokens: int,
        record: RequestRecord,
    ) -> Sequences:
        """The prompt with its likeliest continuation (greedy search)."""
        assert prompt.target is not None  # a decoder reads nothing else
        options = DecodingOptions(max_new_tokens=max_new_tokens)
        request = DecodingRequest(prompt_ids=prompt.target.ids, options=options, deadline=task.deadline)
        stream = await model.engine.open(request)
        new_ids: list[int] = []
        end_id: int | None = None
        try:
            async for event in stream:
                record.num_output_tokens += 1
                if event.finish_reason == "eos_token":
                    end_id = event.token_id
                else:
                    new_ids.append(event.token_id)
        finally:
            await stream.aclose()
        return continue_prompt(model, prompt, new_ids, end_id)

    def _look(self, model: LoadedModel, task: AttentionTask) -> _Look:
        support = model.companion(AttentionSupport)
        if support is None:
            raise NoAttentionError(model.name)
        setting = None
        if task.alignment is not None:
            if "cross" not in support.kinds:
                raise InputError(
                    f"`alignment` is of a text and its translation, and the model {model.name} is for the task "
                    f"{model.task}",
                    parameter="alignment",
                )
            setting = choose_setting(task.alignment, support, model.name)
        return _Look(model, support, select(task.wishes, support, model.name), setting)

    def _check(self, task: AttentionTask, look: _Look, read: Sequences) -> None:
        outline = Outline(
            look.selection,
            read.source.labels() if read.source is not None else (),
            # A translation that is still to be made has its begin token at least.
            read.target.labels() if read.target is not None else ("",),
        )
        check_num_values(outline, self._settings.max_attention_values)
        task.check(outline)

    async def _report(
        self,
        task: AttentionTask,
        look: _Look,
        read: Sequences,
        record: RequestRecord,
        *,
        token_types: tuple[int, ...] | None = None,
        backward: str | None = None,
    ) -> AttentionReport:
        """The report on what was `read`; `backward` is the language of the source, for the opposite translation."""
        layers = look.selection.needed_layers() | ({look.setting.layer} if look.setting is not None else set())
        requests = [
            AttentionRequest(
                source_ids=read.source.ids if read.source is not None else None,
                target_ids=read.target.ids if read.target is not None else None,
                token_type_ids=token_types,
                layers=tuple(sorted(layers)),
                wants_norms=look.selection.norms,
                deadline=task.deadline,
            )
        ]
        if look.setting is not None and look.setting.needs_backward and backward is not None:
            requests.append(self._turned(look, look.setting, read, backward, task.deadline))
        results = await look.support.engine.run(requests)
        for result in results:
            record.add(result)

        def build() -> AttentionReport:
            alignment: WordAlignment | None = None
            if look.setting is not None and read.source is not None and read.target is not None:
                alignment = _align(look.setting, read.source, read.target, results)
            return build_report(look.model.name, look.model.task, read, look.selection, results[0], alignment)

        num_values = sum(
            maps.size for result in results for by_layer in result.maps.values() for maps in by_layer.values()
        )
        return await self._rendering.run(num_values, build)

    def _turned(
        self, look: _Look, setting: AlignmentSetting, read: Sequences, language: str, deadline: float | None
    ) -> AttentionRequest:
        """The opposite translation with the source forced: the same words between other special tokens."""
        assert read.source is not None  # only translations are turned
        assert read.target is not None
        tokenizer = look.model.tokenizer
        _, *source, _ = read.source.ids
        _, *target = read.target.ids
        longest = max(len(target) + 2, len(source) + 1)
        check_num_tokens("alignment, in the opposite direction,", longest, self._settings.max_attention_tokens)
        return AttentionRequest(
            source_ids=(tokenizer.token_id(language_tag(language)), *target, tokenizer.token_id(EOS)),
            target_ids=(look.support.config.bos_id, *source),
            layers=(setting.layer,),
            deadline=deadline,
        )


def _check_backward(model: TranslationModel, given: TranslationInput, setting: AlignmentSetting) -> None:
    if (given.target, given.source) not in model.directions:
        raise InputError(
            f"`alignment` is {setting.method!r}, which needs both directions, but the model {model.name} does not "
            f"translate from {language_name(given.target)} to {language_name(given.source)}. Allowed: argmax, shifted",
            parameter="alignment",
        )


def _align(
    setting: AlignmentSetting, source: TokenSequence, target: TokenSequence, results: Sequence[AttentionResult]
) -> WordAlignment:
    """Links by the maps of a translation and, where there is one, of the opposite one."""
    # Each reads two special tokens beside the text that it translates, and one before the text that it outputs.
    shapes = ((len(target), len(source)), (len(source) - 1, len(target) + 1))
    maps: dict[Direction, NDArray[np.float32]] = {}
    directions: tuple[Direction, ...] = ("forward", "backward")
    for direction, result, shape in zip(directions, results, shapes, strict=False):
        maps[direction] = result.maps["cross"][setting.layer]
        check_maps(f"{direction} cross attention of layer {setting.layer}", maps[direction], shape)
    return align(setting, source, target, maps)
