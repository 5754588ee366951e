# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every small change that a sample may draw is another program, and none is of what only talks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from mutants import sample
from mutants.forked import SWITCH, switched
from mutants.mutant import ROOT
from mutants.operators import Change, changes
from mutants.sample import SURVIVES, Verdict, draw, figures, name_of

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


def _outcomes(text: str) -> list[object]:
    """What the function gives for several numbers, or the kind of its error."""
    names: dict[str, Callable[..., object]] = {}
    exec(compile(text, "source", "exec"), names)
    outcomes: list[object] = []
    for held in (0, 2, 3, 4, 7, 9):
        try:
            outcomes.append(names["worth"](held))
        except Exception as error:
            outcomes.append(type(error))
    return outcomes


@pytest.mark.parametrize("number", range(len(changes(SOURCE))))
def test_a_switch_turns_just_its_change_on(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from __future__ import annotations\n" + SOURCE
    change = changes(source)[number]
    text, there = switched(source, {number: change})
    assert there == {number}
    switch = SimpleNamespace(NUMBER=-1)
    monkeypatch.setitem(sys.modules, SWITCH, switch)
    assert _outcomes(text) == _outcomes(source)
    switch.NUMBER = number
    assert _outcomes(text) == _outcomes(change.made(source))


def test_of_changes_of_one_place_one_has_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from __future__ import annotations\n" + SOURCE
    every = dict(enumerate(changes(source)))
    text, there = switched(source, every)
    assert 0 < len(there) < len(every)
    monkeypatch.setitem(sys.modules, SWITCH, SimpleNamespace(NUMBER=-1))
    assert _outcomes(text) == _outcomes(source)
    assert switched(SOURCE, every) == (SOURCE, set())  # no place for the import


@pytest.mark.slow
@pytest.mark.parametrize("file", ["allocation/rounds.py", "admission/margin.py"])
def test_every_change_is_another_program(file: str) -> None:
    text = (ROOT / "operator/ullage/engines" / file).read_text(encoding="utf-8")
    before = ast.dump(ast.parse(text))
    programs = [ast.dump(ast.parse(change.made(text))) for change in changes(text)]
    assert len(programs) > 50
    assert before not in programs


def _several(file: str, begin: int) -> list[tuple[str, Change]]:
    return [
        (file, Change(line, begin, line, begin + 1, before, "(2)"))
        for line, before in enumerate(("a", "b", "b", "c"), start=1)
    ]


def test_a_larger_sample_of_a_seed_goes_on_where_a_smaller_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = [*_several("first.py", 0), *_several("second.py", 0)]
    monkeypatch.setattr(sample, "every", lambda: every)
    assert draw(5, 1)[:3] == draw(3, 1)
    assert draw(8, 1) != draw(8, 2)


def test_an_edit_of_one_file_draws_no_other_file_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "every", lambda: [*_several("a.py", 0), *_several("b.py", 0)])
    before = [name_of(drawn) for drawn in draw(8, 1) if drawn[0] == "b.py"]
    monkeypatch.setattr(sample, "every", lambda: _several("b.py", 0))
    assert [name_of(drawn) for drawn in draw(4, 1)] == before


def test_the_rate_counts_what_dies_or_hangs_of_each_seed_and_of_all() -> None:
    first, second = _several("operator/ullage/ports.py", 0)[:2], _several("setup.py", 0)[:2]
    outcomes = {name_of(drawn): Verdict("killed") for drawn in (*first, *second)}
    outcomes[name_of(first[0])] = Verdict(SURVIVES)
    outcomes[name_of(second[0])] = Verdict("hangs")
    counted = figures({1: first, 2: second}, outcomes)
    assert (counted["drawn"], counted["killed"], counted["kill_rate"]) == (4, 3, 0.75)
    assert (counted["kill_rate_seed_1"], counted["kill_rate_seed_2"]) == (0.5, 1.0)
