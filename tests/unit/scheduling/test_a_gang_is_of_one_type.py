# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""All members of a gang get devices of one type, unless the spec allows several."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from builders import (
    Part,
    WorkloadBuilder,
    a_device,
    a_gpu_node,
    a_job,
    a_policy,
    a_profile,
    a_service,
)
from fakes.deciding import Decided, decided, told
from ullage.api.reasons import Reason
from ullage.cluster.records.profile import ProfileStatus, SoloEntry


def nodes(**devices: int) -> list[Part]:
    return [
        a_gpu_node(
            f"node-{kind}",
            devices=[a_device(f"GPU-{kind}-{at}", model=kind) for at in range(count)],
        )
        for kind, count in devices.items()
    ]


def kinds(found: Decided) -> Counter[str]:
    return Counter(uuid.split("-")[1] for taken in found.places().values() for uuid in taken)


def placed(one: WorkloadBuilder, *parts: Part) -> Decided:
    return decided(one, *one.pods(), *parts)


def test_a_gang_of_twelve_is_not_divided_over_two_types() -> None:
    found = placed(a_job().gang(12), *nodes(a100=8, t4=8))
    assert kinds(found) == {}
    said = found.condition("train", "Admitted")
    assert said.reason == Reason.GANG_TOO_LARGE
    assert "room for 8 of 12 members on one accelerator type" in said.message


def test_it_is_where_the_spec_allows_several() -> None:
    job = a_job().gang(12).with_(mixed_accelerators=True)
    assert kinds(placed(job, *nodes(a100=8, t4=8))) == {"a100": 8, "t4": 4}


@pytest.mark.parametrize(("a100", "t4", "kind"), [(8, 12, "t4"), (12, 8, "a100")])
def test_the_type_that_has_room_for_all_is_taken(a100: int, t4: int, kind: str) -> None:
    assert kinds(placed(a_job().gang(12), *nodes(a100=a100, t4=t4))) == {kind: 12}


def test_it_waits_for_one_type_though_others_have_room_together() -> None:
    other = a_job("other").gang(4).on("t4")
    parts = [*nodes(a100=8, t4=12), other, *other.pods()]
    found = placed(a_job().gang(12), *parts)
    assert kinds(found) == {"t4": 4}
    said = found.status("train").decision
    assert said is not None
    assert "room for 8 of 12 members" in said.message


def test_the_faster_type_is_taken_that_has_room_for_all() -> None:
    solo = tuple(
        SoloEntry(device=kind, share=100, steps_per_second=rate, samples=9)
        for kind, rate in (("a100", 3.0), ("t4", 1.0), ("v100", 2.0))
    )
    known = replace(a_profile("train", workload_class="train"), status=ProfileStatus(solo=solo))
    job = a_job().gang(4)
    assert kinds(placed(job, *nodes(a100=3, t4=8, v100=8), known)) == {"v100": 4}


def test_devices_of_one_member_are_of_one_type() -> None:
    both = a_gpu_node(
        "node-both",
        devices=[
            a_device(f"GPU-{kind}-{at}", model=kind) for kind in ("x", "y") for at in range(3)
        ],
    )
    assert kinds(placed(a_job().exclusive(4), both)) == {}
    assert kinds(placed(a_job().exclusive(3), both)) in ({"x": 3}, {"y": 3})


def test_shares_of_a_gang_are_of_one_type() -> None:
    job = a_job().gang(6).fractional(40, 50)
    assert kinds(placed(job, *nodes(a100=2, t4=3))) == {"t4": 6}


def test_an_elastic_gang_counts_the_room_of_one_type() -> None:
    parts = nodes(a100=5, t4=3)
    one = told(a_job().elastic(2, 8), *parts)
    assert one.build().status.replicas == 5
    job = one.with_(replicas=5)
    assert kinds(placed(job, *parts)) == {"a100": 5}


def test_replicas_of_a_service_are_wherever_there_is_room() -> None:
    service = a_service().replicas(3)
    found = decided(service, *service.pods(), *nodes(a100=2, t4=1))
    assert kinds(found) == {"a100": 2, "t4": 1}


def test_in_turns_types_are_never_mixed() -> None:
    policy = a_policy(objective="MaxMinFairness")
    job = a_job().gang(3).with_(mixed_accelerators=True)
    assert kinds(placed(job, *nodes(a100=2, t4=3), policy)) == {"t4": 3}
