"""docs/settings.md from the settings themselves: `python -m tests.project.settings_page > docs/settings.md`."""

from __future__ import annotations

from service.settings import ENV_PREFIX, Settings

HEADER = """\
# Settings

By environment variable, or by flag: `POLYHEAD_MAX_ROWS=32` is `--max-rows 32` (with make, `make serve
ARGS="--max-rows 32"`). Flags win. Settings that contradict each other, a missing bundle or a wrong checksum stop the
start with a line that says what to do; a `POLYHEAD_` variable that is no setting is named in the log. `python -m
service --help` shows the same list.

This page is made of `service/settings.py` by `python -m tests.project.settings_page > docs/settings.md`, and a test
holds it to that.

| variable | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole page, one row a setting in the order of the class."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default in ((), "", None) else f"`{field.default}`"
        rows.append(f"| `{ENV_PREFIX}{name.upper()}` | {default} | {field.description} |\n")
    return HEADER + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
