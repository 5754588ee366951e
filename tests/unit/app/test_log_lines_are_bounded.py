# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nothing that a tenant writes makes a log line long."""

from __future__ import annotations

from ullage.process.logs import MOST_CHARACTERS, bounded


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    entry = bounded(None, "", {"event": "task failed", "exception": "first" + "x" * 10**6 + "last"})
    text = entry["exception"]
    assert text.startswith("first")
    assert text.endswith("last")
    assert len(text) < MOST_CHARACTERS + 50
    assert entry["event"] == "task failed"


def test_a_short_text_stays_as_it_is() -> None:
    assert bounded(None, "", {"error": "gone", "again_in_s": 0.5}) == {
        "error": "gone",
        "again_in_s": 0.5,
    }
