# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the cache and of what it reads, each with its reason."""

from __future__ import annotations

from typing import Final

ASSUME_TTL_S: Final = 30.0
"""A write that the watch does not show within it is no longer assumed. Chosen."""
REFUSAL_BACKOFF_FIRST_S: Final = 10.0
"""First wait before a write that the API refused is tried again. Chosen."""
REFUSAL_BACKOFF_MOST_S: Final = 300.0
"""Longest such wait; it doubles with every refusal of the same object. Chosen."""
NODE_REFUSALS_KEPT_S: Final = 1200.0
"""Refusals of slices are remembered for twice the time for which a device is excluded after them.
Chosen."""
CLOCKS_APART_S: Final = 10.0
"""Clocks of nodes and API server differ by no more (not measured). A pod that ended less than this
before it was asked to end counts as stopped: running it again loses less than not doing so."""
ROUTER_TIME_MOST_S: Final = 10 * 365 * 86_400
"""A router that tells a longer time is not believed. Chosen."""
