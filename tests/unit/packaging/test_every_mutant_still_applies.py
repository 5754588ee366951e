# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every named mutant breaks a line that is there, and names tests that exist."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache

import pytest

from mutants.__main__ import SUBJECTS, chosen
from mutants.mutant import ROOT, Mutant

MUTANTS = chosen([])


@cache
def program(file: str) -> str:
    """What stands there unbroken; many rules are broken in the same file."""
    return ast.dump(ast.parse((ROOT / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule.replace(" ", "-"))
def test_its_line_stands_there_once_and_its_tests_exist(mutant: Mutant) -> None:
    assert ast.dump(ast.parse(mutant.text())) != program(mutant.file)
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_a_line_that_is_gone_or_stands_twice_is_an_error() -> None:
    for line in ("this line is in no file", "import"):
        with pytest.raises(ValueError, match="times"):
            replace(MUTANTS[0], line=line).text()


def test_words_choose_by_subject_file_and_rule() -> None:
    assert [one for subject in SUBJECTS for one in chosen([subject])] == MUTANTS
    assert {one.file for one in chosen(["turns", "plan.py"])} == {
        "operator/ullage/scheduling/timeslicing/plan.py"
    }
    assert len({one.rule for one in MUTANTS}) == len(MUTANTS)
    assert chosen(["no such word"]) == []
