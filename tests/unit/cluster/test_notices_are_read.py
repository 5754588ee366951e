# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Notices: the wire form, what taints say, and which of two counts."""

from __future__ import annotations

import pytest

from builders_raw import raw_gpu_node, raw_node
from ullage.api.interruptions import Interruption, InterruptionKind, sooner
from ullage.api.readers import WireError
from ullage.cluster.projection.node import project_gpu_node, project_node
from ullage.cluster.projection.notice import NOTICE_TAINTS, PLANNED_TAINTS

TERMINATE, REBALANCE = InterruptionKind.TERMINATE, InterruptionKind.REBALANCE


def test_a_notice_reads_back_as_written() -> None:
    notice = Interruption(kind=TERMINATE, deadline_s=1767326400.0, source="EC2")
    assert notice.to_wire() == {
        "kind": "Terminate",
        "deadline": "2026-01-02T04:00:00Z",
        "source": "EC2",
    }
    assert Interruption.from_wire(notice.to_wire()) == notice
    bare = Interruption(kind=REBALANCE)
    assert bare.to_wire() == {"kind": "Rebalance"}
    assert Interruption.from_wire(bare.to_wire()) == bare


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ({}, "kind"),
        ({"kind": "Reboot"}, "kind"),
        ({"kind": "Terminate", "deadline": "soon"}, "deadline"),
        ({"kind": "Terminate", "deadline": "2026-01-02T04:00:00"}, "time zone"),
    ],
)
def test_a_notice_that_is_none_names_its_field(wire: dict[str, object], says: str) -> None:
    with pytest.raises(WireError, match=says):
        Interruption.from_wire(wire)


def test_a_gpu_node_carries_the_notice_of_its_agent() -> None:
    raw = raw_gpu_node()
    assert project_gpu_node(raw, 0.0, {}).interruption is None
    raw["status"]["interruption"] = {"kind": "Rebalance", "source": "EC2"}
    assert project_gpu_node(raw, 0.0, {}).interruption == Interruption(kind=REBALANCE, source="EC2")
    raw["status"]["interruption"] = {"kind": "Later"}
    with pytest.raises(WireError, match=r"status\.interruption\.kind"):
        project_gpu_node(raw, 0.0, {})


def tainted(*keys: str, deleting: bool = False) -> Interruption | None:
    raw = raw_node(spec={"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]})
    if deleting:
        raw["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return project_node(raw).interruption


@pytest.mark.parametrize(("key", "kind"), sorted(NOTICE_TAINTS.items()))
def test_taints_of_others_are_notices(key: str, kind: InterruptionKind) -> None:
    assert tainted(key, deleting=True) == Interruption(kind=kind, source=key)


@pytest.mark.parametrize("key", sorted(PLANNED_TAINTS))
def test_what_may_still_be_taken_back_only_keeps_new_work_away(key: str) -> None:
    assert tainted(key) == Interruption(kind=REBALANCE, source=key)
    assert tainted(key, deleting=True) == Interruption(kind=TERMINATE, source=key)


@pytest.mark.parametrize("key", sorted(set(NOTICE_TAINTS) - PLANNED_TAINTS))
def test_the_other_taints_are_the_last_word(key: str) -> None:
    assert tainted(key) == tainted(key, deleting=True)


def test_of_a_provider_and_of_who_chose_the_provider_is_named() -> None:
    chosen, providers = "ToBeDeletedByClusterAutoscaler", "aws-node-termination-handler/spot-itn"
    for keys in ((chosen, providers), (providers, chosen)):
        assert tainted(*keys) == Interruption(kind=TERMINATE, source=providers)


def test_other_taints_and_our_own_are_none() -> None:
    for key in ("spot", "ullage.dev/interruption", "node.kubernetes.io/unschedulable"):
        raw = raw_node(spec={"taints": [{"key": key, "effect": "NoSchedule"}]})
        assert project_node(raw).interruption is None
    assert project_node(raw_node()).interruption is None


def test_the_graver_notice_counts_then_the_earlier() -> None:
    early = Interruption(kind=TERMINATE, deadline_s=100.0)
    late = Interruption(kind=TERMINATE, deadline_s=200.0)
    open_ended = Interruption(kind=TERMINATE)
    likely = Interruption(kind=REBALANCE, deadline_s=50.0)
    for one, other, wins in [
        (early, late, early),
        (early, open_ended, early),
        (likely, late, late),
        (likely, None, likely),
        (None, late, late),
    ]:
        assert sooner(one, other) == wins
        assert sooner(other, one) == wins
    assert sooner(None, None) is None
