# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild objects of every kind that the operator reads; each batch is decided on and written out.

A few thousand by default; ``ULLAGE_WILD_OBJECTS`` sets another number, ``ULLAGE_EXAMPLES=explore``
draws new ones. ``python -m bench.fuzz --seed SEED --batch NUMBER`` runs one again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Final

import pytest

from bench.fuzz import BATCH, run_batch
from bench.wild import STATIONS
from fakes.apiserver.schema import Schemas
from ullage.cluster.values.streams import STREAMS
from ullage.kube.requests import ApiRequest
from ullage.ports import GPU_NODE

OBJECTS: Final = int(os.environ.get("ULLAGE_WILD_OBJECTS", "8000"))
EXPLORES: Final = os.environ.get("ULLAGE_EXAMPLES") == "explore"
SEED: Final = random.SystemRandom().randrange(2**32) if EXPLORES else 1
PER_CASE: Final = 4
CASES: Final = max(1, OBJECTS // (BATCH * PER_CASE))


SCHEMAS: Final = Schemas()


def faults(request: ApiRequest) -> Sequence[str]:
    """What the schema refuses of a GPUNode, which holds the slices of many."""
    shared = request.kind == GPU_NODE
    return SCHEMAS.faults(request.kind.plural, request.body) if shared else ()


@pytest.mark.slow
@pytest.mark.parametrize("case", range(CASES))
def test_nothing_escapes_and_the_third_namespace_stands(case: int) -> None:
    for number in range(case * PER_CASE, (case + 1) * PER_CASE):
        found = run_batch(SEED, number, judge=faults)
        assert not found.escapes, found.escapes[0]
        assert found.objects >= BATCH
        assert found.decisions == 1
        assert found.unread, "objects that cannot be read are counted"
        assert found.actions, "what can be read is decided on"


def test_every_stream_is_drawn() -> None:
    assert set(STATIONS) == set(STREAMS)
