# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Files and folders that the contributors' guide names are there, and no package is left out."""

from __future__ import annotations

import re

from unit.packaging.repository import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = re.compile(r"`((?:operator|deviceplugin|runtime|tests|docs)/[\w./]+)`")
DIFFS = re.compile(r"```diff\n(.*?)```", re.DOTALL)
LAYERED = ("ullage/scheduling", "ullage/cluster")


def test_every_path_exists() -> None:
    named = PATHS.findall(GUIDE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_map_shows_every_package_of_the_layers() -> None:
    for layer in LAYERED:
        packages = {file.parent.name for file in (ROOT / "operator" / layer).glob("*/__init__.py")}
        assert [name for name in sorted(packages) if f"`{name}`" not in GUIDE] == []


def test_every_diff_of_the_guide_still_applies() -> None:
    """Lines that a diff keeps or takes away stand in its file, in that order and together."""
    hunks = [part for diff in DIFFS.findall(GUIDE) for part in diff.split("@@ ") if part]
    assert len(hunks) > 10
    for hunk in hunks:
        path, *lines = hunk.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
        assert before in (ROOT / path).read_text(encoding="utf-8"), hunk
