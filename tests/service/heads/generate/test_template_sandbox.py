"""Whatever a chat template does, it comes to an end."""

from __future__ import annotations

import pytest

from service.heads.generate import template_sandbox
from service.heads.generate.template_sandbox import TemplateLimitError, TemplateSandbox, render

MESSAGES = [{"role": "user", "content": "Hello."}] * 300


def run(source: str) -> str:
    return render(TemplateSandbox().from_string(source), messages=MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in messages %}{% for b in messages %}{% for c in messages %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in messages recursive %}{{ loop(messages) if loop.depth < 6 }}{% endfor %}",
    ],
)
def test_loops_and_calls_have_an_end(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_SECONDS", 0.05)
    with pytest.raises(TemplateLimitError, match=r"longer than 0\.05 seconds"):
        run(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ messages * 100000 }}",
        "{% set n = namespace(s='aaaa') %}{% for m in messages %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        "{% set n = namespace(s='aaaa') %}{% for m in messages %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    ],
)
def test_texts_stop_growing(source: str) -> None:
    with pytest.raises(TemplateLimitError, match="grow"):
        run(source)


def test_what_templates_do_is_left_as_it_is() -> None:
    source = (
        "{% for m in messages[:2] %}{{ loop.index }}/{{ loop.length }}: {{ m.content ~ '!' }}"
        "{% if not loop.last %}, {% endif %}{% if loop.index == 9 %}{% break %}{% endif %}{% endfor %}"
        " {{ 2 ** 3 + 1 }} {{ 'ab' * 2 }} {% for k, v in {'x': 1}.items() %}{{ k }}{{ v }}{% else %}none{% endfor %}"
        "{% for m in messages if m.role == 'system' %}{% else %} no system{% endfor %}"
    )
    assert run(source) == "1/2: Hello.!, 2/2: Hello.! 9 abab x1 no system"
