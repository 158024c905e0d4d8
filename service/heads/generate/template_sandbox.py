"""The sandbox of chat templates: Jinja's, with limits of time and size.

Jinja bounds neither the time of a template nor the length of its text: loops within loops over the messages of a client
take as long as they take. Here each turn of a loop and each call looks at the time, and texts stop growing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SECONDS = 1.0
"""Of CPU time, so that the limit does not depend on other load."""
MAX_CHARACTERS = 4_000_000
_LARGEST_EXPONENT = 64

_deadline: ContextVar[float] = ContextVar("deadline")


class TemplateLimitError(TemplateError):
    """The template exceeds a limit."""


def render(template: Template, **variables: Any) -> str:
    """The text of a template of a `TemplateSandbox`. TemplateLimitError when it takes too long or grows too large."""
    token = _deadline.set(time.thread_time() + MAX_SECONDS)
    try:
        return _bounded_text(template.render(**variables))
    finally:
        _deadline.reset(token)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """What `transformers` gives templates: `raise_exception`, `strftime_now`, `tojson` without HTML escapes."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False)
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.filters |= {"tojson": _to_json, _BoundedNodes.loop: _bounded_loop, _BoundedNodes.text: _bounded_text}

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        _check_time()
        return super().call(context, called, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        bounded = _BoundedNodes().visit(source)
        bounded.set_environment(self)
        return super()._generate(bounded, *args, **kwargs)


class _BoundedNodes(NodeTransformer):
    """Puts a filter of ours around what loops go through, and around texts that are joined."""

    loop, text = "_bounded_loop", "_bounded_text"

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's spelling
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, self.loop, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 - Jinja's spelling
        self.generic_visit(node)
        return nodes.Filter(node, self.text, [], [], None, None, lineno=node.lineno)


def _check_time() -> None:
    if time.thread_time() > _deadline.get(float("inf")):
        raise TemplateLimitError(f"it takes longer than {MAX_SECONDS:g} seconds")


def _bounded_loop(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _check_time()
        yield value


def _bounded_text(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise TemplateLimitError(f"a text in it grows beyond {MAX_CHARACTERS} characters")
    return text


def _check_operands(operator: str, left: Any, right: Any) -> None:
    """TemplateLimitError for a result that would be too large to be made."""
    sizes = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
    factors = [value for value in (left, right) if isinstance(value, int)]
    if operator == "**":
        is_bounded = all(abs(value) <= _LARGEST_EXPONENT for value in factors)
    elif operator == "*" and sizes:
        is_bounded = all(size * factor <= MAX_CHARACTERS for size in sizes for factor in factors)
    else:
        is_bounded = sum(sizes) <= MAX_CHARACTERS
    if not is_bounded:
        raise TemplateLimitError(f"a result of {operator} in it grows too large")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, *, ensure_ascii: bool = False, sort_keys: bool = False) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
