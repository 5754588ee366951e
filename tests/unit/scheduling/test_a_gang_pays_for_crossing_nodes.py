# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gang that is slower over several nodes takes the fewest, and waits a while for fewer."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_device,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_policy,
)
from fakes.choosing import MEMORY_MIB, known
from fakes.deciding import Decided, decided, told
from ullage.api.reasons import Reason
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.node import GPUNodeRecord
from ullage.scheduling.placement.placement import fewest_nodes

PATIENCE_S: Final = 360.0


def nodes(**devices: int) -> list[GPUNodeRecord]:
    """Nodes of a100 with so many devices, by name."""
    return [
        a_gpu_node(
            name,
            devices=[
                a_device(f"GPU-{name}-{at}", model="a100", memory_mib=MEMORY_MIB)
                for at in range(count)
            ],
        )
        for name, count in devices.items()
    ]


def gang(members: int, name: str = "train") -> WorkloadBuilder:
    return a_job(name).gang(members).with_(workload_class="resnet")


def sensitive(part: float | None) -> Part:
    return replace(known(a100=1.0), across_nodes=part)


def on(found: Decided, name: str = "train") -> dict[str, int]:
    """Members of a gang by node."""
    counts: dict[str, int] = {}
    for node, one in found.slices():
        if one.pod_name.startswith(name):
            counts[node] = counts.get(node, 0) + 1
    return counts


def placed(one: WorkloadBuilder, *parts: Part, waited_s: float = 0.0) -> Decided:
    pods = [replace(pod, created=NOW - waited_s) for pod in one.pods()]
    return decided(one, *pods, *parts)


@pytest.mark.parametrize(("part", "most"), [(0.5, 1), (None, 2), (1.0, 2)])
def test_a_sensitive_gang_starts_on_one_node_where_one_has_room(
    part: float | None, most: int
) -> None:
    parts = [*nodes(small=2, large=4), sensitive(part)]
    found = placed(gang(4), *parts)
    assert len(on(found)) == most, "others begin on the fullest node"
    if part == 0.5:
        assert on(found) == {"large": 4}


def test_it_takes_the_fullest_node_that_will_do() -> None:
    found = placed(gang(3), *nodes(a=8, b=4, c=2), sensitive(0.5))
    assert on(found) == {"b": 3}


def test_it_waits_for_fewer_nodes_by_what_it_would_lose_and_says_so() -> None:
    cluster = _held([*nodes(a=3, b=3, d=6), sensitive(0.5)], "d", 4)
    found = placed(gang(6), *cluster)
    assert on(found) == {}
    said = found.condition("train", "Admitted")
    assert said.reason == Reason.WAITS_FOR_FEWER_NODES
    assert "2 nodes, where it keeps 50 % of its speed" in said.message
    assert "room on 1, for 180 s at most" in said.message
    late = placed(gang(6), *cluster, waited_s=0.5 * PATIENCE_S + 1)
    assert on(late) == {"a": 3, "b": 3}


def test_what_it_waits_with_is_there_for_others() -> None:
    cluster = _held([*nodes(a=3, b=3, d=6), sensitive(0.5)], "d", 4)
    first, second = gang(6), gang(3, "second")
    found = decided(first, *first.pods(), second, *second.pods(), *cluster)
    assert on(found) == {}
    assert sum(on(found, "second").values()) == 3


def test_alike_gangs_wait_alike_but_each_by_its_own_patience() -> None:
    cluster = _held([*nodes(a=3, b=3, d=6), sensitive(0.5)], "d", 4)
    gangs = [gang(6, name) for name in ("first", "second", "third", "fourth")]
    waited_s = (0.0, 0.0, 0.5 * PATIENCE_S + 1, 0.0)
    parts: list[Part] = []
    for at, (one, waited) in enumerate(zip(gangs, waited_s, strict=True)):
        one = one.with_(created=NOW - 1_000 + at)
        parts += [one, *(replace(pod, created=NOW - waited) for pod in one.pods())]
    found = decided(*parts, *cluster)
    reasons = [found.condition(name, "Admitted").reason for name in ("first", "second", "fourth")]
    assert reasons == [Reason.WAITS_FOR_FEWER_NODES] * 2 + [Reason.NO_CAPACITY]
    assert on(found, "third") == {"a": 3, "b": 3}
    assert not any(on(found, name) for name in ("first", "second", "fourth"))


def _held(parts: list[Part], node: str, count: int) -> list[Part]:
    """The same cluster, with devices of a node taken by someone."""
    only = [part for part in parts if isinstance(part, GPUNodeRecord) and part.name == node]
    other = a_job("other").gang(count)
    taken = decided(other, *other.pods(), *only)
    return [
        *(
            replace(part, desired=taken.plan.slices[node]) if part is only[0] else part
            for part in parts
        ),
        other,
        *other.pods(),
    ]


@pytest.mark.parametrize("part", [None, 1.0])
def test_an_insensitive_gang_takes_what_is_there(part: float | None) -> None:
    cluster = [*nodes(a=3, b=3, d=6), sensitive(part)]
    found = placed(gang(6), *_held(cluster, "d", 2))
    assert sum(on(found).values()) == 6


def test_it_never_waits_for_what_no_node_has() -> None:
    found = placed(gang(6), *nodes(a=4, b=4), sensitive(0.1))
    assert sorted(on(found).values()) == [2, 4]


def test_the_policy_bounds_the_wait() -> None:
    cluster = [*nodes(a=3, b=3, d=6), sensitive(0.1), a_policy(gang_skip_limit=0)]
    found = placed(gang(6), *_held(cluster, "d", 2), waited_s=1.0)
    assert sum(on(found).values()) == 6


def test_a_type_whose_nodes_are_large_enough_is_recommended() -> None:
    def rows(part: float | None) -> list[tuple[str, int | None]]:
        many = [
            a_gpu_node(
                f"t4-{node}",
                devices=[
                    a_device(f"GPU-t4-{node}-{at}", model="t4", memory_mib=MEMORY_MIB)
                    for at in range(2)
                ],
            )
            for node in range(4)
        ]
        prices = [
            replace(a_device_profile(kind, MEMORY_MIB), price_per_hour=1.0)
            for kind in ("a100", "t4")
        ]
        profile = replace(known(a100=1.0, t4=1.5), across_nodes=part)
        one = gang(4).with_(work_steps=3600, cost=CostAim(objective="Makespan"))
        one = told(one, *nodes(large=4), *many, *prices, profile)
        return [(row.accelerator, row.total_s) for row in one.build().status.recommendation[:2]]

    assert rows(None) == [("t4", 2400), ("a100", 3600)]
    assert rows(0.5) == [("a100", 3600), ("t4", 4800)]


@given(
    room=st.dictionaries(st.integers(0, 6), st.integers(1, 8), max_size=6),
    members=st.integers(1, 16),
)
def test_no_fewer_nodes_would_do(room: dict[int, int], members: int) -> None:
    chosen = fewest_nodes(room, members)
    enough = [
        size
        for size in range(1, len(room) + 1)
        for some in combinations(room, size)
        if sum(room[node] for node in some) >= members
    ]
    assert len(chosen) == (min(enough) if enough else 0)
    assert len(set(chosen)) == len(chosen)
    assert not chosen or sum(room[node] for node in chosen) >= members
    if len(chosen) == 1:
        assert room[chosen[0]] == min(there for there in room.values() if there >= members)
