# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Files and folders that the contributors' guide names are there, and no package is left out."""

from __future__ import annotations

import re

from unit.packaging.repository import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = re.compile(r"`((?:operator|deviceplugin|runtime|tests|docs)/[\w./]+)`")
LAYERED = ("ullage/scheduling", "ullage/cluster")


def test_every_path_exists() -> None:
    named = PATHS.findall(GUIDE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_map_shows_every_package_of_the_layers() -> None:
    for layer in LAYERED:
        packages = {file.parent.name for file in (ROOT / "operator" / layer).glob("*/__init__.py")}
        assert [name for name in sorted(packages) if f"`{name}`" not in GUIDE] == []
