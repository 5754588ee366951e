# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dependencies are pinned by hash and without addresses; the images are built from them."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from unit.packaging.repository import ROOT, distributions, project

FILES = {
    "operator": ["operator"],
    "node": ["node"],
    "router": ["router"],
    "cli": ["cli"],
    "examples": ["examples"],
    "docs": ["docs"],
    "dev": ["operator", "node", "router", "cli", "examples", "dev"],
}
TARGETS = {"operator", "deviceplugin", "examples"}
APART = {"docs"}
"""Installed into an environment of their own."""
each = pytest.mark.parametrize("name", FILES)
each_of_ours = pytest.mark.parametrize("name", sorted(FILES.keys() - APART))


def _text(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def _pins(name: str) -> dict[str, tuple[str, int]]:
    """Distribution -> version and number of hashes."""
    pins: dict[str, tuple[str, int]] = {}
    for entry in _text(name).replace("\\\n", " ").splitlines():
        words = entry.split()
        if words and not entry.startswith("#"):
            pinned = re.fullmatch(r"([a-z0-9.-]+)==([^;]+)", words[0].split(";")[0])
            assert pinned, entry[:80]
            hashes = [word for word in words[1:] if word.startswith("--hash=sha256:")]
            pins[pinned[1]] = (pinned[2], len(hashes))
    return pins


def test_every_file_has_its_extras() -> None:
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == set(FILES)


@each
def test_every_dependency_is_pinned_with_hashes(name: str) -> None:
    pins = _pins(name)
    assert pins
    assert all(hashes > 0 for _, hashes in pins.values())


@each
def test_no_file_says_where_to_download(name: str) -> None:
    text = _text(name)
    assert "://" not in text
    assert not re.search(r"--(index-url|extra-index-url|find-links|trusted-host)|^-[ifre]", text)


@each
def test_every_dependency_of_the_extra_is_pinned_within_its_bounds(name: str) -> None:
    pins = _pins(name)
    for extra in FILES[name]:
        for distribution, words in distributions(extra).items():
            version, _ = pins[distribution]
            assert Requirement(words).specifier.contains(version), f"{distribution} {version}"


@each_of_ours
def test_nothing_is_pinned_that_no_dependency_asks_for(name: str) -> None:
    asked: set[str] = set()
    todo = [Requirement(words) for extra in FILES[name] for words in distributions(extra).values()]
    while todo:
        wanted = todo.pop()
        distribution = canonicalize_name(wanted.name)
        if wanted.extras or distribution not in asked:
            asked.add(distribution)
            todo += _asked_by(wanted)
    assert _pins(name).keys() - asked == set()


def _asked_by(wanted: Requirement) -> list[Requirement]:
    """What an installed distribution asks for, on any machine; one for other machines: nothing."""
    try:
        words = requires(wanted.name) or []
    except PackageNotFoundError:
        return []
    asked = [Requirement(word) for word in words]
    return [
        need
        for need in asked
        if "extra ==" not in str(need.marker)
        or any(need.marker and need.marker.evaluate({"extra": extra}) for extra in wanted.extras)
    ]


@each_of_ours
def test_one_version_of_everything(name: str) -> None:
    everything = _pins("dev")
    assert all(everything[pin] == version for pin, version in _pins(name).items())


def test_the_agents_image_holds_no_operator() -> None:
    assert not _pins("node").keys() & {"pydantic", "kubernetes", "scipy"}


def test_the_operators_image_holds_one_client() -> None:
    assert not _pins("operator").keys() & {"kubernetes-asyncio", "pykube", "pykube-ng"}


class Stage:
    """One stage of the Dockerfile."""

    def __init__(self, base: str, name: str, lines: list[str]) -> None:
        self.base = base
        self.name = name
        self.lines = lines

    def value(self, word: str) -> str:
        found = [line.removeprefix(word).strip() for line in self.lines if line.startswith(word)]
        return found[-1] if found else ""


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found: dict[str, Stage] = {}
    for line in lines:
        if head := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            stage = found[head[2]] = Stage(head[1], head[2], [])
        elif found:
            stage.lines.append(line)
    return found


def test_the_three_targets_stand_on_the_base_without_shell(stages: dict[str, Stage]) -> None:
    assert stages.keys() >= TARGETS
    assert {stages[name].base for name in TARGETS} == {"bare"}
    assert stages["bare"].base == "${BASE}"
    runs = [line for name in TARGETS for line in stages[name].lines if line.startswith("RUN")]
    assert runs
    assert all(line.startswith("RUN [") for line in runs), "exec form: no shell is left to run it"


def test_stages_take_from_stages_that_exist(stages: dict[str, Stage]) -> None:
    seen: set[str] = set()
    for stage in stages.values():
        assert stage.base in {"${BASE}"} | seen
        for line in stage.lines:
            if source := re.search(r"--from=(\S+)", line):
                assert source[1] in seen
        seen.add(stage.name)


def test_images_are_built_from_hashes_without_a_network(stages: dict[str, Stage]) -> None:
    files = set()
    for stage in stages.values():
        for line in stage.lines:
            for install in re.findall(r"pip install [^&]*", line):
                assert "--no-index" in install
                if "-r " in install:
                    assert "--require-hashes" in install
                    files.add(Path(install.split("-r ")[1].split()[0]).stem)
    assert files == {"operator", "node", "examples"}


def test_entry_points_are_commands_of_the_product(stages: dict[str, Stage]) -> None:
    commands = project()["scripts"]
    assert stages["operator"].value("ENTRYPOINT") == '["ullage-operator"]'
    assert stages["deviceplugin"].value("ENTRYPOINT") == '["ullage-node"]'
    assert {"ullage-operator", "ullage-node"} <= commands.keys()
    for name in ("operator", "deviceplugin"):
        assert any("--version" in line for line in stages[name].lines)


def test_no_image_is_root_without_need(stages: dict[str, Stage]) -> None:
    assert stages["operator"].value("USER") == stages["examples"].value("USER") == "65532:65532"


def test_no_image_holds_the_source_tree(stages: dict[str, Stage]) -> None:
    copied = [line.split() for stage in stages.values() for line in stage.lines if "COPY" in line]
    sources = {words[1] for words in copied if not words[1].startswith("--from")}
    assert sources == {
        "requirements",
        "build/wheels/${TARGETARCH}",
        "examples/digits",
        "examples/encoder",
        "examples/generative",
    }
