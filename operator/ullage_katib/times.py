# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the bridge to Katib's services, each with its reason."""

from __future__ import annotations

from typing import Final

KATIB_ANSWER_S: Final = 60.0
"""Limit of an answer, as Katib gives its services."""
KATIB_RETRY_FIRST_S: Final = 1.0
"""First pause after a failure; the pauses double. Chosen."""
KATIB_RETRY_MOST_S: Final = 60.0
"""Longest pause after a failure. Chosen."""
