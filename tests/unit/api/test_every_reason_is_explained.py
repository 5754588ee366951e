# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A word on someone's screen always has an answer."""

from __future__ import annotations

import pytest

from ullage.api.reasons import (
    CHAPTERS,
    ConditionType,
    Reason,
    Standing,
    chapters,
    reason_of,
    standing_of,
)


def test_every_reason_stands_in_one_chapter() -> None:
    titles, groups = zip(*((title, tuple(chapter)) for title, chapter in chapters()), strict=True)
    assert [reason for group in groups for reason in group] == list(Reason)
    assert titles == tuple(CHAPTERS.values())
    assert all(titles)


@pytest.mark.parametrize("reason", Reason)
def test_explanation_says_what_it_means_and_what_to_do(reason: Reason) -> None:
    assert reason.meaning.endswith(".")
    assert reason.what_to_do.endswith(".")
    assert reason.meaning != reason.what_to_do
    assert reason.in_short
    assert not reason.in_short.endswith(".")


@pytest.mark.parametrize("type_", ConditionType)
def test_a_condition_says_when_it_is_true(type_: ConditionType) -> None:
    assert type_.true_when
    assert not type_.true_when.endswith(".")


def test_the_bad_conditions_stand_last() -> None:
    good = [type_.good_when_true for type_ in ConditionType]
    assert good == sorted(good, reverse=True)


def test_a_word_of_the_wire_is_the_reason_of_that_name_or_none() -> None:
    assert reason_of("Preempted") is Reason.PREEMPTED
    assert reason_of("OfTomorrow") is None
    assert standing_of("Preempted") is Reason.PREEMPTED.standing
    assert standing_of("OfTomorrow") is Standing.PLAIN


def test_words_are_unique_and_camel_case() -> None:
    words = [*Reason, *ConditionType]
    assert all(word.isalnum() and word[0].isupper() for word in words)
    assert len({word.value.lower() for word in Reason}) == len(Reason)
