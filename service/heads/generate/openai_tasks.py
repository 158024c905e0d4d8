"""Requests of OpenAI's protocols as generation tasks."""

from __future__ import annotations

from service.errors import InputError
from service.heads.generate.model import GenerationModel
from service.heads.generate.sampling import check_alone, check_beam_size, check_logit_bias, sampling_options
from service.heads.generate.schemas.sampling import SamplingFields
from service.heads.generate.tasks import GenerationTask, Prompt

_NOT_FOR_BEAMS = (
    *("top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
    *("stream", "best_of", "logprobs", "top_logprobs"),
)


def check_options(options: SamplingFields, model: GenerationModel, *, best_of: int, max_best_of: int) -> None:
    """InputError for what does not go together, or is more than the server allows."""
    for name, value in (("n", options.n), ("best_of", best_of)):
        if value > max_best_of:
            raise _invalid(name, f"must be between 1 and {max_best_of}. Given: {value}")
    if best_of < options.n:
        raise _invalid("best_of", f"must be at least n, which is {options.n}. Given: {best_of}")
    if options.stream and best_of > options.n:
        raise _invalid("best_of", f"must be n where the answer is streamed, which is {options.n}. Given: {best_of}")
    if options.stream_options is not None and not options.stream:
        raise _invalid("stream_options", "goes with stream alone, which is not set")
    if options.beam_size > 1:
        check_beam_size(options.beam_size, model)
        given = {name: getattr(options, name) for name in _NOT_FOR_BEAMS if name in options.model_fields_set}
        check_alone("beam search (`beam_size` > 1)", given)
        if options.n > options.beam_size:
            raise _invalid("n", f"must be at most beam_size, which is {options.beam_size}. Given: {options.n}")


def make_task(
    prompt: Prompt,
    options: SamplingFields,
    model: GenerationModel,
    *,
    max_new_tokens: int,
    best_of: int,
    deadline: float,
    top_n_tokens: int = 0,
    wants_prompt_log_probs: bool = False,
) -> GenerationTask:
    """The task for one prompt, of options that have been checked. Raises InputError or TokenIdError for a bias."""
    samples = options.samples
    return GenerationTask(
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        sampling=sampling_options(
            do_sample=samples,
            seed=options.seed,
            temperature=options.temperature if samples else None,
            top_p=options.top_p if samples else None,
            top_k=max(0, options.top_k),
            typical_p=options.typical_p,
            min_p=options.min_p,
            repetition_penalty=options.repetition_penalty,
            frequency_penalty=options.frequency_penalty,
            presence_penalty=options.presence_penalty,
            logit_bias=check_logit_bias(options.logit_bias, model),
        ),
        stops=tuple(options.stop),
        top_n_tokens=top_n_tokens,
        wants_prompt_log_probs=wants_prompt_log_probs,
        num_outputs=options.n,
        num_candidates=best_of,
        is_ranked=best_of > options.n,
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        deadline=deadline,
    )


def _invalid(name: str, what: str) -> InputError:
    return InputError(f"Invalid request: {name} parameter {what}", parameter=name)
