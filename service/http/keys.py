"""API keys: those of POLYHEAD_API_KEYS, and the named ones of POLYHEAD_API_KEYS_FILE, each with its limits and rights.

    [[keys]]
    name = "shop"
    sha256 = "9f86d0..."            # of the key in UTF-8, or the key itself: key = "..."
    requests_per_minute = 600       # each left out is without a limit
    characters_per_month = 500_000
    rights = ["use"]                # "use" where it is left out; "administer" sees the usage of all keys

A key is kept as its SHA-256 alone.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from service.errors import StartupError
from service.settings import Settings

Right = Literal["use", "administer"]
Limit = Annotated[int, Field(ge=1)]

SHARED_NAME = "default"
"""The name under which everybody is counted who has no key of the file."""
_ALL_RIGHTS = frozenset[Right](("use", "administer"))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who asks, and how much and what they may; a limit of None is none."""

    name: str
    requests_per_minute: int | None = None
    characters_per_month: int | None = None
    rights: frozenset[Right] = _ALL_RIGHTS


NO_KEY = ApiKey(SHARED_NAME)
"""Everybody, where the server asks for no key, and whoever has one without a name."""


class KeyRing:
    """The keys that a server knows."""

    def __init__(self, keys: Iterable[tuple[str, ApiKey]]) -> None:
        self._keys = dict(keys)

    @property
    def is_open(self) -> bool:
        """Whether the server asks for no key."""
        return not self._keys

    @property
    def named(self) -> tuple[ApiKey, ...]:
        """Each key once, those without a name as one."""
        return tuple({key.name: key for key in self._keys.values()}.values()) or (NO_KEY,)

    def find(self, given: bytes) -> ApiKey | None:
        """The key that a client has sent. Headers have no encoding: most clients send UTF-8, some Latin-1."""
        # Only digests are compared: how long that takes says nothing of a key.
        found = self._keys.get(_digest(given))
        if found is None and not given.isascii():
            found = self._keys.get(_digest(given.decode("latin-1").encode()))
        return found


def load_keys(settings: Settings) -> KeyRing:
    """The keys of the settings and of the file that they name. StartupError says what is wrong with that file."""
    shared = [(_digest(key.encode()), NO_KEY) for key in settings.accepted_keys]
    return KeyRing([*shared, *(_read(settings.api_keys_file) if settings.api_keys_file else ())])


class _Entry(BaseModel):
    """One table `[[keys]]` of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[\w.@+-]{1,64}$")
    key: SecretStr | None = Field(None, min_length=1)
    sha256: str | None = Field(None, pattern=r"^[0-9a-fA-F]{64}$")
    requests_per_minute: Limit | None = None
    characters_per_month: Limit | None = None
    rights: frozenset[Right] = Field(frozenset[Right](("use",)), min_length=1)

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if (self.key is None) == (self.sha256 is None):
            raise ValueError("give either key or sha256")
        if self.name == SHARED_NAME:
            raise ValueError(f"the name {SHARED_NAME} is that of the keys without one")
        return self

    @property
    def digest(self) -> str:
        return _digest(self.key.get_secret_value().encode()) if self.key else str(self.sha256).lower()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[_Entry] = Field(min_length=1)


def _read(path: Path) -> list[tuple[str, ApiKey]]:
    where = f"POLYHEAD_API_KEYS_FILE (--api-keys-file) {path}"
    try:
        entries = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).keys
    except (OSError, UnicodeError) as error:
        raise StartupError(f"{where} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"{where} is not TOML: {error}") from None  # its source may hold a key
    except ValidationError as error:
        # Without the values: one of them may be a key.
        lines = [f"{where}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise StartupError("\n".join(lines)) from None
    for attribute in ("name", "digest"):
        values = [getattr(entry, attribute) for entry in entries]
        if twice := [entry.name for entry in entries if values.count(getattr(entry, attribute)) > 1]:
            what = "name" if attribute == "name" else "key"
            raise StartupError(f"{where}: the same {what} stands there twice: {', '.join(twice)}")
    return [(entry.digest, _key(entry)) for entry in entries]


def _key(entry: _Entry) -> ApiKey:
    return ApiKey(entry.name, entry.requests_per_minute, entry.characters_per_month, entry.rights)


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
