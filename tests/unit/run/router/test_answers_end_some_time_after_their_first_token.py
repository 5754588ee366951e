# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""When whole answers end follows from their first token, their length and the pace."""

from __future__ import annotations

import pytest

from ullage.engines.batching.histogram import TimeHistogram
from ullage.engines.batching.output_tokens import OutputTokens, TokenCount
from ullage_router.generation_times import _ends

FIRST = TimeHistogram.of([0.5] * 9)


@pytest.mark.parametrize(("tokens", "ends_s"), [(1, 0.5), (2, 0.6), (11, 1.5)])
def test_each_token_after_the_first_takes_the_time_between_two(tokens: int, ends_s: float) -> None:
    lengths = OutputTokens.of([TokenCount(tokens=tokens)] * 3)
    assert _ends(FIRST, lengths, 0.1).mean_s == pytest.approx(ends_s, rel=1e-2)


def test_short_and_long_answers_end_as_often_as_they_come() -> None:
    lengths = OutputTokens.of([TokenCount(tokens=1)] * 3 + [TokenCount(tokens=11)])
    ends = _ends(FIRST, lengths, 0.1)
    assert float(ends.below(1.0)) == pytest.approx(0.75, abs=0.02)
    assert ends.quantile_s(0.99) == pytest.approx(1.5, rel=1e-2)
