# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever order the streams speak in, the picture is that of a clean list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders import a_device, a_slice, reported
from builders_raw import (
    owner_reference,
    raw_adopted_pod,
    raw_claim,
    raw_deployment,
    raw_foreign_pod,
    raw_gpu_node,
    raw_job,
    raw_kube_service,
    raw_namespace,
    raw_node,
    raw_pod,
    raw_pod_group,
    raw_policy,
    raw_pool,
    raw_service,
    raw_storage_class,
    raw_tuning_job,
    raw_volume,
)
from fakes.examples import examples
from ullage.api.slices import SlicePhase
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values import streams
from ullage.cluster.values.streams import STREAMS, Stream

Raw = dict[str, Any]
Event = tuple[str, Stream, Raw]
NAMES = ("a", "b", "c")
CI = examples(40, many=200)


def serving_pod(name: str, turn: int) -> Raw:
    return raw_pod(
        f"serve-{name}-r{turn % 2}",
        kind="InferenceDeployment",
        owner=f"serve-{name}",
        rank=None,
        gated=turn % 2 == 0,
    )


def member(name: str, turn: int) -> Raw:
    """A job's pod, honest or with a claim to a job of another namespace."""
    namespace, version = ("default", 0) if turn % 2 == 0 else ("tenant-b", turn // 2)
    return raw_pod(
        f"{name}-0",
        namespace=namespace,
        owner=name,
        gated=turn % 2 == 0,
        node=name if turn > 2 else "",
        controller=owner_reference("TrainingJob", name, f"uid-{name}-{version}"),
        meta={"uid": f"uid-{namespace}-{name}-0"},
    )


def grouped_pod(name: str, turn: int) -> Raw:
    """A pod of another controller that is placed with a PodGroup."""
    spec = {"schedulingGroup": {"podGroupName": "a"}}
    return raw_adopted_pod(f"theirs-{name}", gated=turn != 2, spec=spec)


PODS: tuple[Callable[[str, int], Raw], ...] = (
    member, member, grouped_pod, grouped_pod, serving_pod, serving_pod,
)  # fmt: skip


# One maker per stream: an object of this name in its version number ``turn``.
MAKERS: dict[Stream, Callable[[str, int], Raw]] = {
    streams.NODES: lambda name, turn: raw_node(name, managed=turn % 3 != 0, ready=turn % 2 == 0),
    streams.PODS: lambda name, turn: PODS[turn](name, turn),
    streams.FOREIGN_PODS: lambda name, turn: raw_foreign_pod(
        f"web-{name}",
        node=NAMES[turn % 3],
        cpu=str(turn),
        phase="Failed" if turn == 5 else "Running",
    ),
    streams.TRAINING_JOBS: lambda name, turn: raw_job(
        name, replicas=turn + 1, meta={"uid": f"uid-{name}-{turn // 3}", "generation": turn}
    ),
    streams.INFERENCE_DEPLOYMENTS: lambda name, turn: raw_service(
        f"serve-{name}", replicas=turn, meta={"uid": f"uid-serve-{name}-{turn // 3}"}
    ),
    streams.GPU_NODES: lambda name, turn: raw_gpu_node(
        name,
        epoch=turn,
        devices=[a_device(f"GPU-{name}")],
        desired=[a_slice(percent=10 * turn)] if turn else [],
        observed=[reported(a_slice(), SlicePhase.RESERVED)] if turn > 3 else [],
        heartbeat=f"2026-01-02T04:0{turn}:00Z",
    ),
    streams.DEPLOYMENTS: lambda name, turn: raw_deployment(f"serve-{name}", replicas=turn),
    streams.SERVICES: lambda name, turn: raw_kube_service(f"serve-{name}", ports=(80 + turn,)),
    streams.SCHEDULING_POLICIES: lambda name, turn: raw_policy(
        "default" if name == "a" else name, roundSeconds=60 + turn
    ),
    streams.CAPACITY_POOLS: lambda name, turn: raw_pool(
        name, max=turn, status={"nodes": turn, "exposureHours": f"{turn}.5"}
    ),
    streams.TUNING_JOBS: lambda name, turn: raw_tuning_job(name, parallelism=1 + turn),
    streams.NAMESPACES: lambda name, turn: raw_namespace(name, turn=str(turn)),
    streams.CLAIMS: lambda name, turn: raw_claim(name, volume=f"pv-{name}" if turn > 2 else ""),
    streams.VOLUMES: lambda name, turn: raw_volume(f"pv-{name}", node=NAMES[turn % 3]),
    streams.STORAGE_CLASSES: lambda name, turn: raw_storage_class(provisioner=f"{name}-{turn}"),
    streams.POD_GROUPS: lambda name, turn: raw_pod_group(name, turn % 3),
}


def key(raw: Raw) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """A valid history per stream: what exists is changed or deleted, what is gone may return."""
    alive: dict[tuple[Stream, tuple[str, str]], Raw] = {}
    events: list[Event] = []
    choices = st.tuples(
        st.sampled_from(list(MAKERS)), st.sampled_from(NAMES), st.integers(0, 5), st.booleans()
    )
    for stream, name, turn, delete in draw(st.lists(choices, max_size=40)):
        raw = MAKERS[stream](name, turn)
        place = (stream, key(raw))
        before = alive.get(place)
        recreated = before is not None and before["metadata"]["uid"] != raw["metadata"]["uid"]
        if before is not None and (delete or recreated):
            events.append(("remove", stream, before))
            del alive[place]
        if not delete:
            events.append(("upsert", stream, raw))
            alive[place] = raw
    return events


def play(state: ClusterState, events: list[Event]) -> None:
    for what, stream, raw in events:
        if what == "upsert":
            state.upsert(stream, raw, 0.0)
        else:
            state.remove(stream, raw, 0.0)


def survivors(events: list[Event]) -> dict[Stream, list[Raw]]:
    last: dict[tuple[Stream, tuple[str, str]], tuple[str, Raw]] = {}
    for what, stream, raw in events:
        last[stream, key(raw)] = (what, raw)
    kept: dict[Stream, list[Raw]] = {stream: [] for stream in STREAMS}
    for (stream, _), (what, raw) in last.items():
        if what == "upsert":
            kept[stream].append(raw)
    return kept


def listed(events: list[Event]) -> ClusterState:
    """The state after one list per stream."""
    state = ClusterState(effect_of)
    for stream, items in survivors(events).items():
        state.replace(stream, items, 0.0)
    return state


def clean(events: list[Event]) -> Snapshot:
    """The picture from one list per stream."""
    return plain(listed(events))


def who_is_foreign(state: ClusterState) -> dict[str, str]:
    return {uid: one.why for uid, one in state.foreign_pods().items()}


def plain(state: ClusterState) -> Snapshot:
    """The picture without what only counts how it came about."""
    snapshot = state.freeze(0.0)
    return Snapshot(
        **{
            name: getattr(snapshot, name)
            for name in Snapshot.__dataclass_fields__
            if name not in ("version", "taken_at", "node_refusals", "refused_starts")
        },
        version=0,
        taken_at=0.0,
    )


@CI
@given(histories(), st.randoms(use_true_random=False))
def test_streams_may_interleave_in_any_way(events: list[Event], random: Any) -> None:
    queues = {stream: [e for e in events if e[1] == stream] for stream in MAKERS}
    shuffled: list[Event] = []
    while any(queues.values()):
        stream = random.choice([stream for stream, queue in queues.items() if queue])
        shuffled.append(queues[stream].pop(0))
    state = ClusterState(effect_of)
    play(state, shuffled)
    assert plain(state) == clean(events)
    assert who_is_foreign(state) == who_is_foreign(listed(events))


@CI
@given(histories(), st.data())
def test_doubled_events_change_nothing(events: list[Event], data: st.DataObject) -> None:
    doubled: list[Event] = []
    for event in events:
        doubled += [event] * data.draw(st.integers(1, 3))
    state = ClusterState(effect_of)
    play(state, doubled)
    assert plain(state) == clean(events)


@CI
@given(histories(), st.randoms(use_true_random=False))
def test_lost_and_reordered_events_are_healed_by_a_relist(events: list[Event], random: Any) -> None:
    mangled = [event for event in events if random.random() > 0.3]
    random.shuffle(mangled)
    state = ClusterState(effect_of)
    play(state, mangled)
    order = list(survivors(events).items())
    random.shuffle(order)
    for stream, items in order:
        random.shuffle(items)
        state.replace(stream, items, 0.0)
    assert plain(state) == clean(events)
    for stream, items in order:
        assert not state.replace(stream, items, 0.0), "a second relist finds no drift"


@CI
@given(histories(), st.integers(0, 40))
def test_a_snapshot_is_not_touched_by_what_comes_later(events: list[Event], cut: int) -> None:
    state = ClusterState(effect_of)
    play(state, events[:cut])
    taken = plain(state)
    again = ClusterState(effect_of)
    play(again, events[:cut])
    play(state, events[cut:])
    assert taken == plain(again)
