# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of price queries, each with its reason."""

from __future__ import annotations

from typing import Final

PRICE_READ_S: Final = 10.0
"""Limit of reading one answer. Chosen."""
PRICE_RETRY_FIRST_S: Final = 30.0
"""First pause after a source that did not answer; the pauses double. Chosen."""
PRICE_RETRY_MOST_S: Final = 1800.0
"""Longest pause after a source that did not answer. Chosen."""
PRICE_CONNECT_S: Final = 5.0
"""Limit of connecting to a source. Chosen."""
PRICE_AHEAD_MOST_S: Final = 300.0
"""Maximum lead of a source's clock over ours. Chosen."""
GCP_CATALOGUE_S: Final = 3600.0
"""Minimum time between two reads of the catalogue: tens of MiB that change once a day at most.
Chosen."""
TOKEN_EARLY_S: Final = 300.0
"""Time before its expiry at which a token is renewed. Chosen."""
