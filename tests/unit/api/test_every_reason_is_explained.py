# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A word on someone's screen always has an answer."""

from __future__ import annotations

import pytest

from ullage.api.explanations.all import CONDITIONS, REASON_GROUPS, REASONS
from ullage.api.reasons import ConditionType, Reason


def test_every_reason_and_condition_has_an_explanation() -> None:
    assert set(REASONS) == set(Reason)
    assert set(CONDITIONS) == set(ConditionType)
    assert sum(map(len, REASON_GROUPS.values())) == len(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_explanation_says_what_it_means_and_what_to_do(reason: Reason) -> None:
    text = REASONS[reason]
    assert text.meaning.endswith(".")
    assert text.what_to_do.endswith(".")
    assert text.meaning != text.what_to_do


def test_words_are_unique_and_camel_case() -> None:
    words = [*Reason, *ConditionType]
    assert all(word.isalnum() and word[0].isupper() for word in words)
    assert len({word.value.lower() for word in Reason}) == len(Reason)
