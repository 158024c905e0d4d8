"""Runs the calls of one client and prints a line for each; knows nothing that an environment of a client may lack."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator


@contextlib.contextmanager
def refuses(error: type[Exception]) -> Iterator[None]:
    """Like pytest.raises, which the environments of the clients do not have."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def calls_of(calls: object) -> list[str]:
    """The names of the calls: the methods of a class, in the order that they are written in."""
    kind = calls if isinstance(calls, type) else type(calls)
    return [name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")]


def run(calls: object) -> None:
    """Every call; "ok NAME" for one that does what its users expect, "failed NAME" and why for one that does not."""
    for name in calls_of(calls):
        try:
            getattr(calls, name)()
        except Exception:  # noqa: BLE001  # the others are to be run as well, and this one is told of
            print(f"failed {name}\n{traceback.format_exc()}")
        else:
            print(f"ok {name}")
