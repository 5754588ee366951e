# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers requests for points in a separate process: bytes in, bytes out, no state."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import dataclass
from typing import Final

from ullage.engines.tuning.suggestions import Suggestion, SuggestionRequest, suggest

NICE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested:
    """Points, and the seconds of work that they took."""

    suggestions: tuple[Suggestion, ...]
    seconds: float


def settle_in() -> None:
    """Prepare a new process: lowest CPU priority."""
    os.nice(NICE)


def suggest_in_worker(payload: bytes) -> bytes:
    """Answer one request.

    Raises:
        ValueError: the library rejects the space or the history; the text has the reason.
    """
    from ullage.app.tpe import ParzenSampler  # in this process alone: it costs memory and time

    request: SuggestionRequest = pickle.loads(payload)
    began = time.perf_counter()
    suggestions = suggest(request, ParzenSampler(request))
    answer = Suggested(suggestions=suggestions, seconds=time.perf_counter() - began)
    return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
