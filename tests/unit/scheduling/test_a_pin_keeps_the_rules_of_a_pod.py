# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Spread, pod affinity, host ports and volumes are judged before a pod is pinned, with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_policy,
    a_slice,
    a_snapshot,
    an_adopted,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided_on
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.pod_rules import (
    AlikePods,
    ClaimRecord,
    FreeVolume,
    HostPort,
    LabelSelector,
    PodRules,
    PodTerm,
    PodTraits,
    SpreadRule,
)
from ullage.cluster.records.pod_shape import Requirement, SelectorTerm
from ullage.scheduling.assignment.cycle_cache import CycleCache

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
APP = (("app", "web"),)
WEB = LabelSelector(requirements=(Requirement(key="app", operator="In", values=("web",)),))
TWO_NODES = (a_gpu_node("node-1", devices=1), a_gpu_node("node-2", devices=1))
PORT = HostPort(ip="0.0.0.0", protocol="TCP", port=18081)


def spread(key: str = HOST, skew: int = 1, **more: object) -> PodRules:
    rule = SpreadRule(topology_key=key, max_skew=skew, selector=WEB, **more)  # type: ignore[arg-type]
    return PodRules(spread=(rule,))


def term(key: str = HOST, selector: LabelSelector = WEB, **more: object) -> PodTerm:
    found = PodTerm(topology_key=key, selector=selector, namespaces=("default",))
    return replace(found, **more)  # type: ignore[arg-type]


def replicas(
    count: int, rules: PodRules | None, percent: int = 20, **pod: object
) -> tuple[Part, ...]:
    """Pods of one Deployment, each placed by itself."""
    parts: list[Part] = []
    for at in range(count):
        unit = an_adopted(f"web-{at}").fractional(percent, percent)
        one = a_pod(f"web-{at}", owner=unit.record, rank=-1, created=NOW - 60 + at, **pod)  # type: ignore[arg-type]
        parts.extend((unit, replace(one, labels=APP, rules=rules, controlled=True)))
    return tuple(parts)


def decide_on(
    *parts: Part,
    around: Mapping[str, Sequence[PodTraits]] | None = None,
    claims: Mapping[str, ClaimRecord] | None = None,
    cache: CycleCache | None = None,
) -> Decided:
    """Decide beside other people's pods, by node, and with claims, by name."""
    snapshot = replace(
        a_snapshot(*parts),
        pods_around={
            node: tuple(AlikePods(traits=one, count=1) for one in pods)
            for node, pods in (around or {}).items()
        },
        claims={("default", name): claim for name, claim in (claims or {}).items()},
    )
    return decided_on(snapshot, cache=cache)


def nodes(found: Decided) -> list[str]:
    return sorted(node for node, _ in found.slices())


def told(found: Decided, name: str = "web-0") -> tuple[str, str]:
    condition = found.condition(name, "Admitted")
    assert condition.status == "False"
    return condition.reason, condition.message


def other(**more: object) -> PodTraits:
    return PodTraits(namespace="default", **more)  # type: ignore[arg-type]


def test_replicas_are_spread_over_nodes() -> None:
    assert nodes(decide_on(*TWO_NODES, *replicas(4, None))) == ["node-1"] * 4
    assert nodes(decide_on(*TWO_NODES, *replicas(4, spread()))) == [
        "node-1", "node-1", "node-2", "node-2",
    ]  # fmt: skip


def test_a_domain_without_room_keeps_replicas_waiting_with_figures() -> None:
    full = a_job("full").exclusive()
    pod = full.pods(PodStage.RUNNING, node="node-2")[0]
    held = a_slice(pod, device=gpu("node-2"), percent=100)
    node = a_gpu_node(
        "node-2", devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)]
    )
    here = a_gpu_node("node-1", devices=1)
    found = decide_on(full, pod, node, here, *replicas(3, spread()))
    assert nodes(found) == ["node-1", "node-2"]
    reasons = [line.reason for line in found.decision("web-1").refusals]
    assert reasons == [Reason.NO_CAPACITY, Reason.SPREAD_UNEVEN]


def test_a_refusal_names_the_domain_and_both_counts() -> None:
    beside = a_node("cpu-1", managed=False)
    found = decide_on(beside, TWO_NODES[0], *replicas(2, spread()))
    reason, message = told(found, "web-1")
    assert (nodes(found), reason) == (["node-1"], Reason.SPREAD_UNEVEN)
    said = f"spread over {HOST}: node-1 would have 2 pods where the fewest have 0, skew 2 > 1"
    assert said in message


def test_pods_over_zones_count_wherever_they_are() -> None:
    zoned = (
        a_node("node-1", labels={ZONE: "a"}),
        a_node("node-2", labels={ZONE: "b"}),
        a_node("cpu-1", labels={ZONE: "a"}, managed=False),
    )
    found = decide_on(
        *zoned,
        *TWO_NODES,
        *replicas(1, spread(ZONE)),
        around={"cpu-1": (other(labels=APP),)},
    )
    assert nodes(found) == ["node-2"]


def test_a_pod_that_leaves_is_not_counted() -> None:
    leaving = {"node-1": (other(labels=APP, leaving=True),)}
    assert nodes(decide_on(*TWO_NODES, *replicas(1, spread()), around=leaving)) == ["node-1"]


def test_min_domains_are_kept_as_kube_scheduler_sees_a_pinned_pod() -> None:
    rules = spread(min_domains=2)
    around = {"node-1": (other(labels=APP),), "node-2": (other(labels=APP),)}
    found = decide_on(*TWO_NODES, *replicas(1, rules), around=around)
    assert nodes(found) == []
    reason, message = told(found)
    assert reason == Reason.SPREAD_UNEVEN
    assert "minDomains 2: kube-scheduler sees one domain of a pinned pod" in message
    ignoring = spread(min_domains=2, honours_affinity=False)
    assert nodes(decide_on(*TWO_NODES, *replicas(1, ignoring), around=around)) == ["node-1"]


def test_a_pod_goes_where_the_pods_are_that_it_wants() -> None:
    rules = PodRules(affinity=(term(selector=_app("cache")),))
    cache = {"node-2": (other(labels=(("app", "cache"),)),)}
    assert nodes(decide_on(*TWO_NODES, *replicas(1, rules), around=cache)) == ["node-2"]
    found = decide_on(*TWO_NODES, *replicas(1, rules))
    reason, message = told(found)
    assert (nodes(found), reason) == ([], Reason.POD_AFFINITY)
    assert f"pod affinity over {HOST}: no pod with app=cache is there" in message


def test_the_first_of_pods_that_want_one_another_goes_anywhere_and_the_others_to_it() -> None:
    rules = PodRules(affinity=(term(),))
    found = decide_on(*TWO_NODES, *replicas(3, rules))
    assert len(set(nodes(found))) == 1
    assert len(nodes(found)) == 3


def test_replicas_that_exclude_one_another_are_apart() -> None:
    rules = PodRules(anti_affinity=(term(),))
    found = decide_on(*TWO_NODES, *replicas(3, rules))
    assert nodes(found) == ["node-1", "node-2"]
    reason, message = told(found, "web-2")
    assert reason == Reason.POD_ANTI_AFFINITY
    assert "app=web" in message


def test_members_of_a_gang_count_for_one_another() -> None:
    job = a_job("train").fractional(20).gang(2)
    apart = PodRules(anti_affinity=(term(),))
    members = tuple(replace(pod, labels=APP, rules=apart) for pod in job.pods())
    assert nodes(decide_on(*TWO_NODES, job, *members)) == ["node-1", "node-2"]
    alone = decide_on(TWO_NODES[0], job, *members)
    assert nodes(alone) == []
    assert told(alone, "train")[0] == Reason.POD_ANTI_AFFINITY


def test_pods_without_rules_stay_away_from_pods_that_exclude_them() -> None:
    keeper = other(anti_affinity=(term(),))
    found = decide_on(*TWO_NODES, *replicas(1, None), around={"node-1": (keeper,)})
    assert nodes(found) == ["node-2"]
    everywhere = dict.fromkeys(("node-1", "node-2"), (keeper,))
    found = decide_on(*TWO_NODES, *replicas(1, None), around=everywhere)
    reason, message = told(found)
    assert (nodes(found), reason) == ([], Reason.POD_ANTI_AFFINITY)
    assert "keep pods with app=web away" in message


def test_terms_reach_namespaces_by_their_labels() -> None:
    team = LabelSelector(requirements=(Requirement(key="team", operator="In", values=("red",)),))
    rules = PodRules(anti_affinity=(term(namespaces=(), namespace_selector=team),))
    there = {"node-1": (PodTraits(namespace="far", labels=APP),)}
    snapshot = decide_on(*TWO_NODES, *replicas(1, rules), around=there).snapshot
    assert nodes(decided_on(snapshot)) == ["node-1"]
    red = replace(snapshot, namespaces={"far": (("team", "red"),)})
    assert nodes(decided_on(red)) == ["node-2"]


@pytest.mark.parametrize(
    ("taken", "placed"),
    [
        (PORT, "node-2"),
        (replace(PORT, ip="10.0.0.1"), "node-2"),
        (replace(PORT, protocol="UDP"), "node-1"),
        (replace(PORT, port=18082), "node-1"),
    ],
)
def test_a_host_port_is_taken_once_a_node(taken: HostPort, placed: str) -> None:
    rules = PodRules(ports=(PORT,))
    around = {"node-1": (other(ports=(taken,)),)}
    assert nodes(decide_on(*TWO_NODES, *replicas(1, rules), around=around)) == [placed]


def test_pods_that_were_just_placed_take_their_ports() -> None:
    rules = PodRules(ports=(PORT,))
    found = decide_on(*TWO_NODES, *replicas(3, rules))
    assert nodes(found) == ["node-1", "node-2"]
    assert told(found, "web-2")[0] == Reason.HOST_PORT_TAKEN
    assert "host port 18081/TCP is taken" in told(found, "web-2")[1]


def _app(name: str) -> LabelSelector:
    return LabelSelector(requirements=(Requirement(key="app", operator="In", values=(name,)),))


def _on(node: str) -> tuple[SelectorTerm, ...]:
    said = Requirement(key=HOST, operator="In", values=(node,))
    return (SelectorTerm(expressions=(said,)),)


USES = PodRules(claims=("data",))


def test_a_bound_volume_decides_the_node() -> None:
    claim = ClaimRecord(volume="pv-1", nodes=_on("node-2"))
    found = decide_on(*TWO_NODES, *replicas(1, USES), claims={"data": claim})
    assert nodes(found) == ["node-2"]
    away = decide_on(TWO_NODES[0], *replicas(1, USES), claims={"data": claim})
    reason, message = told(away)
    assert (nodes(away), reason) == ([], Reason.VOLUME_ELSEWHERE)
    assert "the volume pv-1 of PersistentVolumeClaim data is not reached" in message


@pytest.mark.parametrize(
    "claims",
    [{}, {"data": ClaimRecord(problem="PersistentVolumeClaim data does not exist")}],
)
def test_a_claim_that_cannot_be_used_keeps_the_pod_waiting(claims: dict[str, ClaimRecord]) -> None:
    found = decide_on(*TWO_NODES, *replicas(1, USES), claims=claims)
    reason, message = told(found)
    assert (nodes(found), reason) == ([], Reason.VOLUME_NOT_READY)
    assert "does not exist" in message


def test_a_volume_for_one_pod_has_one_user() -> None:
    claim = ClaimRecord(volume="pv-1", once=True)
    found = decide_on(*TWO_NODES, *replicas(2, USES), claims={"data": claim})
    assert len(nodes(found)) == 1
    assert told(found, "web-1")[0] == Reason.VOLUME_NOT_READY
    used = {"node-2": (other(claims=("data",)),)}
    assert (
        nodes(decide_on(*TWO_NODES, *replicas(1, USES), claims={"data": claim}, around=used)) == []
    )


def test_claims_that_wait_share_no_volume_and_one_node() -> None:
    both = PodRules(claims=("data", "more"))
    volumes = (FreeVolume(name="a", nodes=_on("node-1")), FreeVolume(name="b", nodes=_on("node-2")))
    spare = FreeVolume(name="c", nodes=_on("node-2"))
    waits = ClaimRecord(candidates=(*volumes, spare))
    found = decide_on(*TWO_NODES, *replicas(1, both), claims={"data": waits, "more": waits})
    assert nodes(found) == ["node-2"]
    made = ClaimRecord(provisioned=True, one_node=True, topologies=(((HOST, ("node-2",)),),))
    found = decide_on(*TWO_NODES, *replicas(2, USES), claims={"data": made})
    assert nodes(found) == ["node-2", "node-2"]


def test_what_is_too_large_to_be_judged_waits_with_its_reason_and_harms_no_one() -> None:
    wild = PodRules(unjudged="spec.affinity.podAffinity: 900, at most 16 are judged")
    innocent = an_adopted("calm").fractional(20)
    pod = a_pod("calm-0", owner=innocent.record, rank=-1)
    found = decide_on(*TWO_NODES, *replicas(1, wild), innocent, pod)
    reason, message = told(found)
    assert (nodes(found), reason) == (["node-1"], Reason.POD_RULES_TOO_LARGE)
    assert "900, at most 16 are judged" in message


def test_what_can_be_placed_nowhere_holds_nothing() -> None:
    parts = replicas(1, PodRules(affinity=(term(selector=_app("cache")),)), 100)
    old = tuple(part.aged(86_400) if isinstance(part, WorkloadBuilder) else part for part in parts)
    young = an_adopted("calm").exclusive()
    pod = a_pod("calm-0", owner=young.record, rank=-1, created=NOW)
    policy = a_policy(gang_skip_limit=0)
    assert nodes(decide_on(policy, TWO_NODES[0], *old, young, pod)) == ["node-1"]


def test_a_cycle_that_keeps_what_it_knows_sees_other_peoples_pods_come_and_go() -> None:
    cache = CycleCache()
    parts = (*TWO_NODES, *replicas(1, PodRules(affinity=(term(selector=_app("cache")),))))
    assert nodes(decide_on(*parts, cache=cache)) == []
    there = {"node-2": (other(labels=(("app", "cache"),)),)}
    assert nodes(decide_on(*parts, around=there, cache=cache)) == ["node-2"]
    keeper = other(anti_affinity=(term(selector=_app("web")),))
    apart = {"node-2": (*there["node-2"], keeper)}
    assert nodes(decide_on(*parts, around=apart, cache=cache)) == []


def test_an_elastic_gang_is_as_large_as_its_rules_leave_room() -> None:
    job = a_job("train").fractional(20, 20).elastic(1, 4).status(phase="Pending", replicas=4)
    apart = PodRules(anti_affinity=(term(),))
    members = tuple(replace(pod, labels=APP, rules=apart) for pod in job.gang(4).pods())
    found = decide_on(*TWO_NODES, job.gang(4), *members)
    assert found.status("train").replicas == 2
