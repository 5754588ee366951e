# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""On how many examples an expensive property is tried: few in each fast run, many under stress.

``ULLAGE_EXAMPLES=many`` (``make test-stress``) takes the large number, ``explore`` the one of its
profile, with new examples each time. Never for a cheap property: its default number is right.
"""

from __future__ import annotations

import os

from hypothesis import settings


def seeds(few: int, many: int) -> range:
    """Seeds of a costly example that is drawn by its seed.

    Args:
        few: How many in the fast suite.
        many: How many in the stress suite, the few among them.
    """
    return range(few if os.environ.get("ULLAGE_EXAMPLES", "gate") == "gate" else many)


def examples(few: int, many: int) -> settings:
    """The settings of one property.

    Args:
        few: In the fast suite.
        many: In the stress suite; the first of them are not the few.
    """
    counts = {"gate": few, "many": many}
    count = counts.get(os.environ.get("ULLAGE_EXAMPLES", "gate"))
    return settings() if count is None else settings(max_examples=count)
