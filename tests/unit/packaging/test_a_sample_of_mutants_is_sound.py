# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every small change that a sample may draw is another program, and none is of what only talks."""

from __future__ import annotations

import ast

import pytest

from mutants.mutant import ROOT
from mutants.operators import changes
from mutants.sample import draw

SOURCE = '''
LIMIT = 3

def worth(held: int, most: float = 2.0) -> float:
    """Not 4."""
    if not held or held < LIMIT:
        raise ValueError(f"{held + 1} is less than {LIMIT - 1}")
    rest: float = most - 1
    rest *= max(held, 5) if held is None else 0.5
    assert rest > 6
    return "ü" and rest
'''


def test_bodies_are_changed_and_nothing_that_only_talks() -> None:
    found = {(one.before, one.after) for one in changes(SOURCE)}
    assert found == {
        ("not held or held < LIMIT", "(not held and held < LIMIT)"),
        ("not held", "(held)"),
        ("held < LIMIT", "(held <= LIMIT)"),
        ("most - 1", "(most + 1)"),
        ("1", "(2)"),
        (
            "rest *= max(held, 5) if held is None else 0.5",
            "rest /= max(held, 5) if held is None else 0.5",
        ),
        (
            "max(held, 5) if held is None else 0.5",
            "(0.5 if held is None else max(held, 5))",
        ),
        ("max(held, 5)", "(min(held, 5))"),
        ("5", "(6)"),
        ("held is None", "(held is not None)"),
        ("0.5", "(1.5)"),
        ("return 'ü' and rest", "return None"),
        ("'ü' and rest", "('ü' or rest)"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("file", ["allocation/rounds.py", "admission/margin.py"])
def test_every_change_is_another_program(file: str) -> None:
    text = (ROOT / "operator/ullage/engines" / file).read_text(encoding="utf-8")
    before = ast.dump(ast.parse(text))
    programs = [ast.dump(ast.parse(change.made(text))) for change in changes(text)]
    assert len(programs) > 50
    assert before not in programs


@pytest.mark.slow
def test_a_larger_sample_of_a_seed_goes_on_where_a_smaller_one_ends() -> None:
    assert draw(30, 1)[:20] == draw(20, 1)
