"""The sampling parameters of a request as the engine's options."""

from __future__ import annotations

from collections.abc import Mapping

from service.engine.decode.sampling.options import SamplingOptions
from service.errors import InputError, TokenIdError, shown
from service.heads.generate.model import GenerationModel

_LOWEST_TEMPERATURE = 1e-3
"""Below it sampling is greedy in effect, and the division of logits may overflow."""
_STRONGEST_BIAS = 100.0
_LONGEST_ID = 20  # digits


def sampling_options(
    *,
    do_sample: bool,
    seed: int | None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    typical_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    logit_bias: tuple[tuple[int, float], ...] = (),
) -> SamplingOptions:
    """The options, with None for off; their bounds have been checked."""
    return SamplingOptions(
        do_sample=do_sample,
        seed=seed,
        temperature=1.0 if temperature is None else max(temperature, _LOWEST_TEMPERATURE),
        top_k=top_k or 0,
        top_p=1.0 if top_p is None else top_p,
        typical_p=1.0 if typical_p is None else typical_p,
        min_p=min_p or 0.0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        frequency_penalty=frequency_penalty or 0.0,
        presence_penalty=presence_penalty or 0.0,
        logit_bias=logit_bias,
    )


def check_logit_bias(biases: Mapping[str, float], model: GenerationModel) -> tuple[tuple[int, float], ...]:
    """Token ids with what is added to their logits. Raises InputError or TokenIdError."""
    checked = []
    for key, bias in biases.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= _LONGEST_ID):
            raise InputError(
                f"Invalid request: logit_bias parameter: its keys are token ids. Given: {shown(key)}",
                parameter="logit_bias",
            )
        if int(key) >= model.tokenizer.vocab_size:
            raise TokenIdError(int(key), model.tokenizer.vocab_size, parameter="logit_bias")
        if not abs(bias) <= _STRONGEST_BIAS:
            raise InputError(
                f"Invalid request: logit_bias parameter: {bias} for the token {key} is not between "
                f"-{_STRONGEST_BIAS:g} and {_STRONGEST_BIAS:g}",
                parameter="logit_bias",
            )
        checked.append((int(key), bias))
    return tuple(checked)


def check_top_tokens(count: int, model: GenerationModel, *, parameter: str) -> int:
    """`count`; InputError where the model cannot name so many of the likeliest tokens."""
    if count > model.max_top_tokens:
        raise InputError(
            f"Input validation error: `{parameter}` must be >= 0 and <= {model.max_top_tokens} for the model "
            f"{model.name}. Given: {count}",
            parameter=parameter,
        )
    return count


def check_beam_size(beam_size: int, model: GenerationModel) -> None:
    """InputError for a beam that is too wide for the model."""
    if beam_size > model.max_beam_size:
        raise InputError(
            f"Input validation error: `beam_size` must be between 1 and {model.max_beam_size}. Given: {beam_size}",
            parameter="beam_size",
        )


def check_alone(switch: str, others: Mapping[str, object]) -> None:
    """InputError for the first of `others` that is set, None and False being not, beside the parameter `switch`."""
    for name, value in others.items():
        if value is not None and value is not False and value != []:
            raise InputError(
                f"Input validation error: `{name}` does not go with {switch}. Given: {shown(value)}",
                parameter=name,
            )
