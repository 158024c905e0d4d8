"""A report made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from service.heads.attend.report import AttentionReport, KindMaps
from service.heads.attend.tokens import Token, TokenSequence

HOSTILE = "</script><img src=x onerror=alert(1)>"


def sequence(*texts: str) -> TokenSequence:
    """One token a text, after a special one."""
    whole = " ".join(texts)
    tokens, start = [Token(1, "<s>", special=True)], 0
    for text in texts:
        tokens.append(Token(7, text, start, start + len(text), text_index=0))
        start += len(text) + 1
    return TokenSequence((whole,), tuple(tokens))


def report(source: TokenSequence | None = None, target: TokenSequence | None = None, **changes: Any) -> AttentionReport:
    source, target = source or sequence("the", "key"), target or sequence("der", "alte", "Schlüssel")
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(len(source)), (2, 2, len(target))).astype(np.float32)
    made = AttentionReport(
        model="en-de",
        task="translate",
        text=target.texts[0],
        source=source,
        target=target,
        predictions=(*target.tokens[1:], None),
        aggregate="none",
        words=False,
        maps=(KindMaps("cross", (0, 1), (0, 1), weights),),
        norms=None,
        alignment=None,
    )
    return replace(made, **changes)
