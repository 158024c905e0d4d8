"""The locked packages are those that pyproject.toml asks for; should a test fail, run `make lock`."""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIMES = ("cpu", "gpu")
FILES = [f"{runtime}{kind}" for runtime in RUNTIMES for kind in ("", "-hashes")]
ENVIRONMENTS = [
    {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "sys_platform": system,
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
    }
    for version, system in itertools.product(("3.11", "3.12", "3.13", "3.14"), ("linux", "darwin", "win32"))
]


@dataclass
class Pin:
    """One package of a lock, why it is there and which files of it are known."""

    requirement: Requirement
    wanted_by: list[str] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)

    @property
    def version(self) -> str:
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return specifier.version


def read(name: str) -> list[Pin]:
    pins: list[Pin] = []
    for line in (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if found := re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?", line):
            pins[-1].hashes.append(found[1])
        elif found := re.fullmatch(r"    #(?: via)? *(.*)", line):
            pins[-1].wanted_by += [found[1]] if found[1] and not found[1].startswith("-c ") else []
        else:
            pins.append(Pin(Requirement(line.removesuffix(" \\"))))
    return pins


def wanted(runtime: str) -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return list(map(Requirement, [*PROJECT["dependencies"], *extras[runtime], *extras["pictures"]]))


def applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(dict(environment))


@pytest.mark.parametrize("name", FILES)
def test_what_the_project_asks_for_is_locked_and_nothing_that_it_does_not(name: str) -> None:
    pins = read(name)
    own = {canonicalize_name(pin.requirement.name) for pin in pins if "polyhead (pyproject.toml)" in pin.wanted_by}
    assert own == {canonicalize_name(requirement.name) for requirement in wanted(name.removesuffix("-hashes"))}
    names = {canonicalize_name(pin.requirement.name) for pin in pins} | {"polyhead (pyproject.toml)"}
    assert [pin.requirement.name for pin in pins if not pin.wanted_by or not set(pin.wanted_by) <= names] == []


@pytest.mark.parametrize(
    "environment", ENVIRONMENTS, ids=lambda each: f"{each['python_version']}-{each['sys_platform']}"
)
@pytest.mark.parametrize("name", FILES)
def test_each_environment_has_one_version_of_each_package_and_it_is_allowed(
    name: str, environment: dict[str, str]
) -> None:
    versions: dict[str, str] = {}
    for pin in read(name):
        if applies(pin.requirement, environment):
            assert versions.setdefault(canonicalize_name(pin.requirement.name), pin.version) is pin.version
    for requirement in wanted(name.removesuffix("-hashes")):
        if applies(requirement, environment):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_files_with_hashes_hold_the_same_packages(runtime: str) -> None:
    plain, hashed = read(runtime), read(f"{runtime}-hashes")
    assert [str(pin.requirement) for pin in plain] == [str(pin.requirement) for pin in hashed]
    assert [pin.requirement.name for pin in hashed if not pin.hashes] == []
    assert not any(pin.hashes for pin in plain)


@pytest.mark.parametrize("name", FILES)
def test_no_lock_names_an_index(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|--(?:index|extra-index|find-links|trusted-host)", text)


def test_the_makefile_and_the_dockerfile_install_what_is_locked() -> None:
    assert "--constraint requirements/$(RUNTIME).txt" in (ROOT / "Makefile").read_text(encoding="utf-8")
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert [f"--constraint requirements/{runtime}.txt" in dockerfile for runtime in RUNTIMES] == [True, True]
