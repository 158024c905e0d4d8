from __future__ import annotations

import pytest

from service.errors import SettingsError
from service.settings import Settings, load_settings, unknown_variables


def problems(*arguments: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(arguments)
    return caught.value.problems


def test_flags_win_over_the_environment_and_that_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHEAD_PORT", "9001")
    monkeypatch.setenv("POLYHEAD_MAX_ROWS", "32")
    settings = load_settings(["--port", "9002"])
    assert (settings.port, settings.max_rows, settings.max_beam_size) == (9002, 32, 8)


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHEAD_API_KEYS", "one, two,")
    settings = load_settings(["--cors-origins", "https://a.example,https://b.example"])
    assert settings.accepted_keys == ("one", "two")
    assert settings.cors_origins == ("https://a.example", "https://b.example")


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHEAD_API_KEYS", "")
    monkeypatch.setenv("POLYHEAD_PORT", "")
    assert load_settings([]) == Settings()


def test_keys_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHEAD_API_KEYS", "secret")
    assert "secret" not in repr(load_settings([]))


def test_every_problem_has_its_line() -> None:
    lines = problems("--port", "99999", "--device", "tpu", "--max-rows", "0")
    assert len(lines) == 3
    assert lines[0].startswith("POLYHEAD_PORT (--port) is '99999': ")
    assert "'auto', 'cpu' or 'cuda'" in lines[1]
    assert lines[2].startswith("POLYHEAD_MAX_ROWS (--max-rows) is '0': ")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--max-source-tokens", "5000"], ["MAX_SOURCE_TOKENS", "MAX_BATCH_TOKENS"]),
        (["--max-waiting-tokens", "100"], ["MAX_SOURCE_TOKENS", "MAX_WAITING_TOKENS"]),
        (["--max-rows", "4"], ["MAX_BEAM_SIZE", "MAX_ROWS"]),
        (["--max-alternatives", "8"], ["MAX_ALTERNATIVES", "MAX_BEAM_SIZE"]),
        (["--max-stored-file-bytes", "1"], ["MAX_FILE_BYTES", "MAX_STORED_FILE_BYTES"]),
        (["--max-body-bytes", "1000"], ["MAX_BODY_BYTES", "MAX_TEXT_CHARACTERS"]),
    ],
)
def test_limits_that_contradict_each_other_are_refused(arguments: list[str], names: list[str]) -> None:
    (line,) = problems(*arguments)
    assert all(f"POLYHEAD_{name} (--{name.lower().replace('_', '-')})" in line for name in names)


def test_contradictions_are_reported_together() -> None:
    assert len(problems("--max-source-tokens", "99999", "--max-rows", "4")) == 3


def test_a_misspelt_variable_is_noticed() -> None:
    (message,) = unknown_variables({"POLYHEAD_PROT": "1", "POLYHEAD_PORT": "1", "PATH": "/bin"})
    assert message == "POLYHEAD_PROT is not a setting and is ignored; did you mean POLYHEAD_PORT?"


def test_help_describes_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(["--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, field in Settings.model_fields.items():
        assert field.description
        assert field.description in text
        assert f"POLYHEAD_{name.upper()}" in text


def test_an_unknown_flag_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(["--prot", "1"])
    assert caught.value.code == 2
    assert "--prot" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["translate.example.org", "ftp://a.example", "https://", "https://a.example/?q=1", "http://a/#b"]
)
def test_a_public_url_that_no_link_can_begin_with_is_refused(url: str) -> None:
    (line,) = problems("--public-url", url)
    assert line.startswith(f"POLYHEAD_PUBLIC_URL (--public-url) is {url!r}: it must begin with http:// or https://")


def test_a_public_url_may_have_a_path() -> None:
    assert load_settings(["--public-url", "https://a.example/api/"]).public_url == "https://a.example/api"
