# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An operator in front of an older CRD, or of none, comes to the verdict of the newest CRD.

Every golden manifest that the schema or a rule refuses is refused by the projection too, or stands
in a list that says why it does no harm.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from builders_raw import raw_meta
from golden_manifests import Golden, goldens
from ullage.api.efficiencyreport import read_report_spec
from ullage.api.readers import WireError, section
from ullage.api.rules import RULES
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams

STREAMS: Final = {stream.kind.kind: stream for stream in streams.STREAMS}
HARMLESS: Final[dict[str, str]] = {
    "policy-without-spec": "every field has its default",
    "node-without-epoch": "the next write brings it",
    "node-slice-twice": "the operator writes the list again",
    "service-replicas-above-scaling": "scaling binds who writes replicas, nothing reads it",
    "service-default-replicas-below-scaling": "as above",
    "profile-with-op-twice": "both count, in the order of the list",
    "profile-with-unknown-counter": "it is told and nothing else",
    "job-accelerator-twice": "the same type twice is that type",
    "tuning-suggested-epochs-fall": "that trial alone is refused, with the reason",
}
"""Cases that the projection takes, and why nothing comes of them."""


def fault_of(golden: Golden) -> str:
    """What is wrong with this object; an EfficiencyReport is read by what writes it."""
    body: dict[str, Any] = dict(golden.body)
    if golden.kind == "EfficiencyReport":
        try:
            read_report_spec(section(body, "spec"))
        except WireError as error:
            return str(error)
        return ""
    state = ClusterState(effect_of)
    stream = STREAMS[golden.kind]
    stated = body.get("metadata") or {}
    space = "default" if stream.kind.namespaced else ""
    body["metadata"] = raw_meta(str(stated.get("name", "")), space) | {
        key: value for key, value in stated.items() if key != "name"
    }
    state.upsert(stream, body, 1.0)
    state.freeze(2.0)
    return state.projection_messages.get(stream.name, "")


def case(golden: Golden) -> str:
    return golden.case


@pytest.mark.parametrize("golden", [one for one in goldens().values() if one.valid], ids=case)
def test_what_the_schema_takes_is_read(golden: Golden) -> None:
    assert not fault_of(golden)


@pytest.mark.parametrize(
    "golden",
    [one for one in goldens().values() if not (one.valid or one.after or one.by == "unknown")],
    ids=case,
)
def test_what_the_schema_refuses_is_refused_or_harmless(golden: Golden) -> None:
    fault = fault_of(golden)
    assert bool(fault) is (golden.case not in HARMLESS), fault


def test_every_rule_is_walked() -> None:
    walked = {rule for one in goldens().values() for rule in one.rules}
    assert {rule.name for rule in RULES} <= walked
