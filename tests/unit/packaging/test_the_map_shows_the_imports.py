# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pictures of CONTRIBUTING are drawn from the imports, an arrow where no path says as much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


def arrows(package: str) -> set[tuple[str, str]]:
    """(importer, imported) of what is right below a package, less what a path says."""
    graph = grimp.build_graph(package.partition(".")[0])
    children = {child.rpartition(".")[2] for child in graph.find_children(package)}
    direct: dict[str, set[str]] = {child: set() for child in children}
    for importer in children:
        for imported in children - {importer}:
            below = (f"{package}.{importer}", f"{package}.{imported}")
            if graph.direct_import_exists(importer=below[0], imported=below[1], as_packages=True):
                direct[importer].add(imported)
    return {
        (importer, imported)
        for importer, imports in direct.items()
        for imported in imports
        if not any(imported in reached(direct, other) for other in imports - {imported})
    }


def reached(direct: dict[str, set[str]], start: str) -> set[str]:
    """All that a package imports, in any number of steps."""
    found, todo = set[str](), [start]
    while todo:
        for one in direct[todo.pop()] - found:
            found.add(one)
            todo.append(one)
    return found


def drawn(package: str) -> Iterator[tuple[str, str]]:
    """The arrows of the picture that bears the name of a package."""
    text = GUIDE.read_text("utf-8")
    block = re.search(rf"```mermaid\n%% {re.escape(package)}\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"CONTRIBUTING.md has no picture of {package}"
    for line in block[1].splitlines():
        importer, arrow, imported = line.partition("-->")
        if arrow:
            yield importer.strip(), imported.strip()


@pytest.mark.parametrize("package", ["ullage", "ullage.scheduling"])
def test_the_picture_is_that_of_the_imports(package: str) -> None:
    real = arrows(package)
    lines = "\n".join(f"  {one} --> {other}" for one, other in sorted(real))
    assert set(drawn(package)) == real, f"draw in CONTRIBUTING.md:\n{lines}"
