# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the cache and its readers, each with its reason."""

from __future__ import annotations

from typing import Final

ASSUME_TTL_S: Final = 30.0
"""Time after which a write not shown by the watch is no longer assumed. Chosen."""
REFUSAL_BACKOFF_FIRST_S: Final = 10.0
"""First wait before a rejected write is retried. Chosen."""
REFUSAL_BACKOFF_MOST_S: Final = 300.0
"""Longest such wait; it doubles with every refusal of the same object. Chosen."""
NODE_REFUSALS_KEPT_S: Final = 1200.0
"""Refusals of slices are stored for twice the time of the exclusion that follows. Chosen."""
CLOCKS_APART_S: Final = 10.0
"""Maximum clock difference of nodes and API server (not measured). A pod that ended less than this
before it was asked to stop counts as stopped: running it again loses less than not doing so."""
ROUTER_TIME_MOST_S: Final = 10 * 365 * 86_400
"""Upper bound of a router's reported time. Chosen."""
