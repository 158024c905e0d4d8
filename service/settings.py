"""Every setting of the server, in one place, from the environment (`POLYHEAD_...`) and from flags.

There is no module-level instance: `load_settings` makes one, and `create_app(settings)` takes it.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.errors import SettingsError

ENV_PREFIX = "POLYHEAD_"
NAMES_OF_NO_MODEL = frozenset(
    {"tgi", "tei", "text-generation-inference", "text-embeddings-inference", "huggingface/tgi", "dummy"}
)
"""What clients of servers with one model send where they have to send something."""
_NOT_OURS = frozenset({"POLYHEAD_DATA"})
"""Read by `python -m model`: where the training data lies."""
_SECRET_FIELDS = frozenset({"api_keys"})
_BYTES_PER_CHARACTER = 4

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """The server's settings; each description says what it means, in which unit, and what to choose."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, validate_default=True
    )

    bundles: Path = Field(Path("bundles"), description="Folder of the model bundles, or one bundle.")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    public_url: str = Field(
        "",
        description="URL at which clients reach the server, such as https://translate.example.org/api: links to "
        "translated files begin with it.",
    )
    root_path: str = Field(
        "",
        description="Path below which a proxy serves the service, such as /polyhead, whether it removes that prefix or "
        "not; the page, the documentation and links to files follow it.",
    )
    model_aliases: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Comma-separated further names of models, such as gpt-4o=generate-en: what clients ask for, and "
        "the loaded model that they get.",
    )
    root_task: str = Field(
        "",
        description="Task (translate, embed or generate) of what is posted to /, /invocations, /vertex or /tokenize "
        "where the body fits several; else it gets a 400.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where models run; auto takes CUDA when the runtime offers it."
    )
    precision: Literal["auto", "fp32", "int8", "int4", "fp16", "bf16"] = Field(
        "auto",
        description="Precision of the graphs to load; auto takes the fastest of the bundle for the device (on the CPU "
        "int8, then int4, then fp32, on a GPU fp16, then bf16, then fp32), and for embeddings the fastest with a "
        "smallest cosine of 0.99 in the bundle's parity report.",
    )
    loops: int = Field(
        0, ge=0, description="Loops of each model, sharing its weights; 0 takes as many as its threads leave cores for."
    )
    threads: int = Field(
        0, ge=0, description="CPU threads of each loop; 0 takes one, and for generation all cores, but at most 8."
    )

    cuda_graphs: bool = Field(
        True,
        description="On a GPU, record decoder steps as CUDA graphs and launch each as a whole; it needs one loop, the "
        "default there.",
    )

    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Comma-separated keys, one of which a request must carry; none leaves the server open."
    )
    api_keys_file: Path | None = Field(
        None,
        description="TOML file of named keys, each with its requests a minute, characters a month and rights "
        "(docs/security.md); a request must carry one of these, or of the keys above.",
    )
    usage_file: Path | None = Field(
        None,
        description="SQLite file that keeps what each key has used when the server ends; without one it begins anew.",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Comma-separated web origins that browsers may call from; * for any."
    )
    forwarded_allow_ips: str = Field(
        "127.0.0.1", description="Comma-separated proxies whose X-Forwarded headers are believed; * for any."
    )

    max_body_bytes: Count = Field(2 * 1024 * 1024, description="Longest request body, in bytes, file uploads apart.")
    max_text_characters: Count = Field(
        100_000,
        description="Longest text of a request, in characters, summed over q and over the inputs of /tokenize and "
        "/decode.",
    )
    max_body_values: Count = Field(
        300_000,
        description="Most values in the lists and objects of a request together, token ids and keys among them.",
    )
    max_answer_values: Count = Field(
        4_000_000, description="Most numbers in an answer of /embed_all, or with log-probabilities."
    )
    max_batch_texts: Count = Field(256, description="Most texts in a q that is a list.")
    max_client_batch_size: Count = Field(32, description="Most inputs of one request for embeddings.")
    auto_truncate: bool = Field(
        True,
        description="Cut inputs for embeddings that are too long, where a request does not say; else they get a 422.",
    )
    tokenization_workers: Count = Field(2, description="Threads that tokenize inputs for embeddings.")
    max_best_of: Count = Field(8, description="Most outputs that a request may ask for of one prompt.")
    max_alternatives: int = Field(7, ge=0, description="Most alternative translations that a request may ask for.")
    max_beam_size: Count = Field(8, description="Widest beam that a request may ask for.")
    max_source_tokens: Count = Field(
        256,
        description="Longest sentence given to a model, in tokens; longer ones are split. The model may allow less.",
    )
    max_new_tokens: Count = Field(
        256, description="Longest translation of a sentence, in tokens. The model may allow less."
    )

    max_attention_tokens: Count = Field(
        512, description="Longest sequence that attention is shown of, in tokens. The model may allow less."
    )
    max_attention_values: Count = Field(
        4_000_000, description="Most numbers in an answer of /attention: layers x heads x queries x keys."
    )
    max_picture_pixels: Count = Field(16_000_000, description="Largest heatmap of /attention, in pixels.")
    max_waiting_answers: Count = Field(
        32, description="Most answers of /attention that wait to be drawn or written; more get a 429."
    )

    max_file_bytes: Count = Field(10 * 1024 * 1024, description="Largest file for /translate_file, in bytes.")
    max_file_characters: Count = Field(1_000_000, description="Longest text of a file, in characters, summed.")
    max_file_memory_bytes: int = Field(
        512 * 1024 * 1024,
        ge=128 * 1024 * 1024,
        description="Memory (address space) of the process that reads and writes a file, in bytes; a file that takes "
        "more is refused.",
    )
    max_file_cpu_seconds: Count = Field(
        20, description="Processor time for reading and writing a file; one that takes more is refused."
    )
    max_concurrent_files: Count = Field(
        2, description="Files that are translated at a time, each read and written in a process of its own."
    )
    max_stored_file_bytes: Count = Field(
        64 * 1024 * 1024,
        description="Room for translated files that wait for their download, in bytes, in the temp folder.",
    )
    file_lifetime_seconds: Seconds = Field(1800, description="How long a translated file can be downloaded.")
    max_jobs: Count = Field(64, description="Most jobs that are kept, such as the documents of /v2/document.")
    max_job_bytes: Count = Field(
        64 * 1024 * 1024, description="Memory for what jobs were given and for their results, in bytes."
    )
    job_lifetime_seconds: Seconds = Field(
        1800, description="Longest time for a job, and how long its result can be fetched after that."
    )

    max_waiting_requests: Count = Field(1024, description="Most sequences that wait for a model; more get a 429.")
    max_waiting_tokens: Count = Field(65_536, description="Most tokens that wait for a model; more get a 429.")
    max_batch_tokens: Count = Field(4096, description="Most tokens, padding included, of one encoder batch.")
    max_embedding_batch_tokens: int = Field(
        0,
        ge=0,
        description="Most tokens, padding included, of one batch of embeddings; 0 takes 512 on the CPU and 16384 on a "
        "GPU, or one input of the model's longest.",
    )
    max_rows: Count = Field(
        128,
        description="Rows of the key-value cache of each decoding loop, for short or for long requests; both together "
        "may have a quarter more. A beam of 4 takes 4.",
    )
    greedy_steps: int = Field(
        0,
        ge=0,
        description="Most steps of greedy decoding between two looks at requests that come and go, where every row "
        "decodes greedily and none is streamed; on a GPU those behind an end are in vain. 0 takes 1 on the CPU and 4 "
        "on a GPU.",
    )
    max_total_tokens: Count = Field(
        4096, description="Longest prompt and its continuation together, in tokens. The model may allow less."
    )
    max_prompt_batch_tokens: int = Field(
        0,
        ge=0,
        description="Most prefill tokens, padding included, in one decode step; 0 takes 256 on the CPU and 4096 on a "
        "GPU.",
    )
    max_cache_bytes: int = Field(
        0,
        ge=0,
        description="Most bytes of key-value cache that the sequences of one model may fill; more wait. 0 takes a "
        "quarter of the memory that the process may use, or of the GPU's.",
    )
    max_prefix_tokens: Count = Field(
        8192,
        description="Tokens of finished sequences that are kept in the prefix cache; 1 keeps none.",
    )
    requests_per_minute: int = Field(0, ge=0, description="Requests that one client may make in a minute; 0 is off.")

    request_timeout_seconds: Seconds = Field(60, description="Longest time for a request, waiting included.")
    health_timeout_seconds: Seconds = Field(
        5, description="Longest time for the request with which /health probes a model."
    )
    drain_timeout_seconds: Seconds = Field(30, description="Longest time to answer what was accepted, after SIGTERM.")
    max_connections: Count = Field(
        4096,
        description="Most connections that are open at a time, fewer where the process may not open as many files; "
        "more get a 503.",
    )
    header_timeout_seconds: Seconds = Field(
        10, description="Longest time from the beginning of a connection or of a request to the end of its headers."
    )
    keep_alive_seconds: Count = Field(30, description="How long an idle connection is kept open.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line written."
    )

    @field_validator("api_keys", "cors_origins", "model_aliases", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("model_aliases")
    @classmethod
    def _are_pairs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pair in value:
            if not all(part.strip() for part in pair.partition("=")):
                raise ValueError(f"{pair!r} must be a further name, = and the name of a model")
        return value

    @field_validator("root_path")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        path = value.rstrip("/")
        if path and not re.fullmatch(r"(/[\w.~-]+)+", path, re.ASCII):
            raise ValueError("it must be a path such as /api, of letters, digits and -._~")
        return path

    @field_validator("public_url")
    @classmethod
    def _is_a_base_url(cls, value: str) -> str:
        url = urlsplit(value)
        if value and (url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment):
            raise ValueError("it must begin with http:// or https:// and a host, and have no ? and no #")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _limits_fit_together(self) -> Self:
        """Refuse limits that would let a request in and then never serve it; every problem has its own line."""
        problems = [
            f"{_names(small)} is {getattr(self, small)}, but {_names(large)} is only {getattr(self, large)}: {reason}"
            for small, large, reason in _MUST_NOT_EXCEED
            if getattr(self, small) > getattr(self, large)
        ]
        if self.max_alternatives >= self.max_beam_size:
            problems.append(
                f"{_names('max_alternatives')} is {self.max_alternatives}, but {_names('max_beam_size')} is only "
                f"{self.max_beam_size}: the beam holds the best translation and its alternatives"
            )
        if self.max_body_bytes < (needed := _BYTES_PER_CHARACTER * self.max_text_characters):
            problems.append(
                f"{_names('max_body_bytes')} is {self.max_body_bytes}, but {_names('max_text_characters')} "
                f"({self.max_text_characters}) can take {needed} bytes in UTF-8: raise the one or lower the other"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def aliases(self) -> dict[str, str]:
        """The models of `model_aliases` by their further names."""
        return {alias.strip(): name.strip() for alias, _, name in (pair.partition("=") for pair in self.model_aliases)}

    @property
    def accepted_keys(self) -> tuple[str, ...]:
        """The API keys in clear."""
        return tuple(key.get_secret_value() for key in self.api_keys)


_MUST_NOT_EXCEED = (
    ("max_source_tokens", "max_batch_tokens", "a sentence must fit into one batch"),
    ("max_source_tokens", "max_waiting_tokens", "a sentence must be able to wait"),
    ("max_beam_size", "max_rows", "a beam must fit into the cache"),
    ("max_file_bytes", "max_stored_file_bytes", "a translated file must be stored until its download"),
    ("max_file_bytes", "max_job_bytes", "a job keeps its file and then its result"),
)


def _names(field: str) -> str:
    return f"{ENV_PREFIX}{field.upper()} (--{field.replace('_', '-')})"


def load_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from the flags `arguments` (default `sys.argv[1:]`), else from the environment, else the defaults.

    Raises:
        SettingsError: with one line for each problem.
        SystemExit: 0 for --help, 2 for an unknown flag, as argparse does.
    """
    flags = vars(_parser().parse_args(arguments))
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise SettingsError(tuple(line for problem in error.errors() for line in _lines(problem))) from error


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """One message for each POLYHEAD_ variable that is no setting, because a misspelt limit is not in force."""
    known = {ENV_PREFIX + field.upper() for field in Settings.model_fields} | _NOT_OURS
    messages = []
    for name in sorted(os.environ if environ is None else environ):
        if name.startswith(ENV_PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            messages.append(
                f"{name} is not a setting and is ignored" + (f"; did you mean {close[0]}?" if close else "")
            )
    return messages


def _lines(problem: Mapping[str, Any]) -> list[str]:
    """A pydantic error in words: the setting by both its names, its value, and what is allowed."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message.splitlines()
    field = str(problem["loc"][0])
    value = "" if field in _SECRET_FIELDS else f" is {str(problem['input'])!r}"
    return [f"{_names(field)}{value}: {message[:1].lower()}{message[1:]}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m service",
        description="Serve transformer models over HTTP. Every flag is also an environment variable, and wins over it.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=110),
        allow_abbrev=False,
    )
    for name, field in Settings.model_fields.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=_metavar(name, field),
            help=f"{field.description} Default {_shown(field)} [{ENV_PREFIX}{name.upper()}]".replace("%", "%%"),
        )
    return parser


def _metavar(name: str, field: FieldInfo) -> str:
    choices = getattr(field.annotation, "__args__", None) if "Literal" in str(field.annotation) else None
    if choices:
        return "{" + ",".join(map(str, choices)) + "}"
    return name.rsplit("_", 1)[-1].upper()


def _shown(field: FieldInfo) -> str:
    if field.default in {(), "", None}:
        return "none."
    return f"{field.default}."
