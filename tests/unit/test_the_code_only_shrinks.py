# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of the code stay at or below their ceilings, and each ceiling above its goal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ceilings


@pytest.mark.slow
def test_no_figure_is_above_its_ceiling() -> None:
    today = ceilings.figures()
    assert today.keys() == ceilings.CEILINGS.keys()
    above = {
        name: f"{today[name]:g} is above {bound.ceiling:g}"
        for name, bound in ceilings.CEILINGS.items()
        if today[name] > bound.ceiling
    }
    assert not above, "make them fall, or say in the commit why they may not"
    assert all(bound.goal <= bound.ceiling for bound in ceilings.CEILINGS.values())


def test_what_is_measured_is_found_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '''"""What it is."""
import json
from ullage.api.slices import (
    text,
)

WAIT_S = 3
MOST = 4
GOOD = (Reason.PLACED, Reason.RUNNING)
WORDS = {Reason.PLACED: "a", Reason.RUNNING: "b"}
TOLD = (Reason.PLACED, "it runs")
Kind = Literal[Reason.PLACED, Reason.RUNNING]

class Part:
    """A part."""

    partners: tuple[str, ...]
    step_s: float

def _helper(one):
    found = one  # a comment

    return found

def use():
    """Use it."""
    return _helper(text) + json
'''
    tree = ast.parse(text)
    module = ceilings.Module(
        path=Path("part.py"), text=text, tree=tree, nodes=tuple(ast.walk(tree))
    )
    monkeypatch.setattr(ceilings, "modules", lambda: (module, module))
    assert ceilings.figures() == {
        "lines": 2 * 27,
        "files": 2,
        "classes that share a name": 2,
        "bindings of vague names": 4,
        "docstrings that ask, %": round(100 / 3, 1),
        "durations outside of times": 2,
        "sets of reasons outside of the table": 4,
        "private functions named once, %": 50.0,
        "import lines, %": round(400 / 18, 1),
        "importers of the widest module": 2,
        "declarations of a step row": 2,
        "declarations of a spec": 1.0,
    }


def test_a_part_of_a_spec_that_makes_the_crd_alone_is_a_second_declaration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def declared(base: str) -> float:
        text = f"""
class Part({base}):
    at: int

Parts = Annotated[tuple[Part, ...], listed(4)]

class JobSpec(Spec):
    parts: Parts

class Job(Resource):
    spec: JobSpec

class PoolSpec(Spec):
    size: int

class Pool(Resource):
    spec: PoolSpec
"""
        tree = ast.parse(text)
        nodes = tuple(ast.walk(tree))
        module = ceilings.Module(path=Path("part.py"), text=text, tree=tree, nodes=nodes)
        monkeypatch.setattr(ceilings, "modules", lambda: (module,))
        return ceilings._spec_declarations()

    assert declared("Spec") == 1.0
    assert declared("Model") == 1.5
