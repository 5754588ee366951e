# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The number of replicas is set for the version that was decided about, and by a leader alone."""

from __future__ import annotations

from fakes.virtual_time import run_virtual
from fakes.writer_rig import WHY, a_rig, service
from ullage.kube.requests import key_of, verb_of
from ullage.ports import Conflict
from ullage.scheduling.model.plan import ScaleWorkload

AT = ("InferenceDeployment", "default", "serve")


def scale(replicas: int, version: str) -> ScaleWorkload:
    return ScaleWorkload(owner=service(), resource_version=version, replicas=replicas, **WHY)


def held(version: str = "5") -> dict[str, object]:
    return {
        "metadata": {"name": "serve", "uid": "uid-serve", "resourceVersion": version},
        "spec": {"replicas": 1},
    }


def test_the_version_that_was_seen_is_scaled() -> None:
    async def main() -> None:
        async with a_rig() as rig:
            rig.cluster.objects[AT] = held()
            await rig.write(scale(3, "5"))
            assert rig.cluster.objects[AT]["spec"]["replicas"] == 3
            assert rig.results == [(scale(3, "5"), None)]
            assert rig.stats.writes["scale", "InferenceDeployment", "ok"] == 1

    run_virtual(main())


def test_another_version_is_left_alone_and_decided_again() -> None:
    async def main() -> None:
        async with a_rig() as rig:
            rig.cluster.objects[AT] = held("6")
            await rig.write(scale(3, "5"))
            assert rig.cluster.objects[AT]["spec"]["replicas"] == 1
            assert [type(error) for error in rig.errors] == [Conflict]
            assert rig.stats.writes["scale", "InferenceDeployment", "conflict"] == 1

    run_virtual(main())


def test_who_does_not_lead_scales_nothing() -> None:
    async def main() -> None:
        async with a_rig() as rig:
            rig.held = False
            rig.cluster.objects[AT] = held()
            await rig.write(scale(3, "5"))
            assert rig.cluster.objects[AT]["spec"]["replicas"] == 1

    run_virtual(main())


def test_a_scale_and_a_status_do_not_wait_for_one_another() -> None:
    assert key_of(scale(3, "5")) == (*AT, "")
    assert verb_of(scale(3, "5"))[0].value == "scale"
