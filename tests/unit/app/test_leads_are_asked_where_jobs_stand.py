# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The leader alone asks leads, news alone wakes decisions, silence changes nothing."""

from __future__ import annotations

from dataclasses import replace

from fakes.clock import FakeClock
from ullage.adapters.lead_reader import LeadSilent
from ullage.app.lead_service import LeadService
from ullage.decide.effects import effect_of
from ullage.ports import JsonObject
from ullage.state import streams
from ullage.state.cluster.cluster import ClusterState
from ullage.state.status.tier import LeadReport

REPORT = LeadReport(stage=2, epoch=4, step=102, committed=101, reliable=1, transient=2)


class Replica:
    """One operator's look at leads; ``answers`` are by address."""

    def __init__(self) -> None:
        self.leading = True
        self.answers: dict[str, LeadReport | None] = {"10.0.0.9": REPORT}
        self.asked: list[str] = []
        self.pokes: list[str] = []
        self.state = ClusterState(effect_of)
        self.service = LeadService(
            self,
            self.state,
            clock=FakeClock(),
            leads=lambda: self.leading,
            poke=self.pokes.append,
        )

    def lead(self, **status: object) -> None:
        """Its pod, in this state."""
        self.state.upsert(streams.PODS, a_pod(status), 0.0)

    async def read(self, address: str) -> LeadReport | None:
        self.asked.append(address)
        if address not in self.answers:
            raise LeadSilent("nobody")
        return self.answers[address]

    async def close(self) -> None:
        return None

    def told(self) -> LeadReport | None:
        return self.state.freeze(0.0).leads.get("uid-train")


def a_pod(status: dict[str, object]) -> JsonObject:
    labels = {
        "ullage.dev/managed": "true",
        "ullage.dev/kind": "TrainingJob",
        "ullage.dev/owner": "train",
        "ullage.dev/lead": "true",
    }
    owner = {"kind": "TrainingJob", "name": "train", "uid": "uid-train", "controller": True}
    return {
        "metadata": {
            "name": "train-lead",
            "namespace": "team",
            "uid": "uid-lead",
            "labels": labels,
            "ownerReferences": [{"apiVersion": "ullage.dev/v1alpha1", **owner}],
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "resourceVersion": "1",
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "lead", "image": "x"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.9"} | status,
    }


async def test_what_a_lead_says_reaches_decisions() -> None:
    replica = Replica()
    replica.lead()
    await replica.service.look()
    assert replica.told() == REPORT
    assert replica.pokes == ["lead"]


async def test_steps_wake_nobody() -> None:
    replica = Replica()
    replica.lead()
    await replica.service.look()
    replica.answers["10.0.0.9"] = replace(REPORT, step=200, committed=199)
    await replica.service.look()
    assert replica.told() == replica.answers["10.0.0.9"]
    assert replica.pokes == ["lead"]
    replica.answers["10.0.0.9"] = replace(REPORT, lost_steps=2)
    await replica.service.look()
    assert replica.pokes == ["lead", "lead"]


async def test_silence_leaves_what_was_said() -> None:
    replica = Replica()
    replica.lead()
    await replica.service.look()
    del replica.answers["10.0.0.9"]
    await replica.service.look()
    assert replica.told() == REPORT


async def test_a_lead_that_ended_is_forgotten() -> None:
    replica = Replica()
    replica.lead()
    await replica.service.look()
    replica.lead(phase="Failed")
    await replica.service.look()
    assert replica.told() is None


async def test_only_the_leader_asks_and_only_leads_that_run() -> None:
    replica = Replica()
    replica.lead(phase="Pending", podIP="")
    await replica.service.look()
    assert replica.asked == []
    replica.lead()
    replica.leading = False
    await replica.service.look()
    assert replica.asked == []
