# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from builders import a_slice
from fakes import writer_rig as do
from fakes.virtual_time import run_virtual
from fakes.writer_rig import Rig, a_rig
from ullage import ports
from ullage.cluster.projection.pod_template import Seen
from ullage.ports import Conflict


def test_an_equal_apply_is_sent_once_while_the_watch_lags() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.node("n1", a_slice()), seconds=1)
            await rig.write(do.node("n1", a_slice()), seconds=1)
            return rig

    rig = run_virtual(main())
    assert len(rig.cluster.calls) == 1
    assert rig.errors == []
    assert rig.stats.writes["apply", "GPUNode", "unchanged"] == 1


def test_an_apply_that_no_one_ever_sees_is_sent_again() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.node("n1", a_slice()), seconds=31)
            await rig.write(do.node("n1", a_slice()), seconds=1)
            return rig

    assert len(run_virtual(main()).cluster.calls) == 2


def test_a_foreign_change_is_corrected_and_our_own_is_not() -> None:
    async def main() -> list[int]:
        async with a_rig() as rig:
            counts = []
            await rig.write(do.node("n1", a_slice()))
            made = rig.cluster.objects["GPUNode", "", "n1"]["metadata"]
            for generation in (made["generation"], made["generation"] + 1):
                seen = Seen(uid=made["uid"], generation=generation)
                rig.source.shown["GPUNode", "", "n1"] = seen
                await rig.write(do.node("n1", a_slice()), seconds=100)
                counts.append(len(rig.cluster.calls))
            return counts

    assert run_virtual(main()) == [1, 2]


def test_a_re_created_object_is_applied_to_again() -> None:
    async def main() -> int:
        async with a_rig() as rig:
            await rig.write(do.node("n1", a_slice()))
            rig.source.shown["GPUNode", "", "n1"] = Seen(uid="another", generation=1)
            await rig.write(do.node("n1", a_slice()))
            return len(rig.cluster.calls)

    assert run_virtual(main()) == 2


def test_two_statuses_in_a_row_need_not_wait_for_the_watch() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            job = rig.cluster.put(
                ports.TRAINING_JOB, {"metadata": {"name": "train", "namespace": "default"}}
            )
            version = job["metadata"]["resourceVersion"]
            for phase in ("Pending", "Reserving", "Starting", "Running"):
                await rig.write(do.status(phase, version=version))
            return rig

    rig = run_virtual(main())
    assert rig.errors == []
    assert rig.cluster.objects["TrainingJob", "default", "train"]["status"] == {"phase": "Running"}


def test_a_status_on_top_of_someone_elses_change_is_refused_and_told() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            body = {"metadata": {"name": "train", "namespace": "default"}}
            version = rig.cluster.put(ports.TRAINING_JOB, body)["metadata"]["resourceVersion"]
            await rig.write(do.status("Pending", version=version))
            rig.cluster.put(ports.TRAINING_JOB, body)
            await rig.write(do.status("Running", version=version))
            return rig

    assert [type(error) for error in run_virtual(main()).errors] == [Conflict]


def test_an_equal_status_is_sent_once_until_someone_else_changes_the_object() -> None:
    async def main() -> list[int]:
        async with a_rig() as rig:
            body = {"metadata": {"name": "train", "namespace": "default"}}
            version = rig.cluster.put(ports.TRAINING_JOB, body)["metadata"]["resourceVersion"]
            counts = []
            await rig.write(do.status(version=version))
            await rig.write(do.status(version=version))
            counts.append(len(rig.cluster.calls))
            await rig.write(do.status(version=body["metadata"]["resourceVersion"]))
            counts.append(len(rig.cluster.calls))
            rig.cluster.put(ports.TRAINING_JOB, body)
            await rig.write(do.status(version=body["metadata"]["resourceVersion"]))
            counts.append(len(rig.cluster.calls))
            assert rig.errors == []
            return counts

    assert run_virtual(main()) == [1, 1, 2]


def test_conditions_of_the_policy_are_sent_once() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.put(ports.SCHEDULING_POLICY, {"metadata": {"name": "default"}})
            await rig.write(do.policy(), seconds=1)
            await rig.write(do.policy(), seconds=1)
            await rig.write(do.policy("False"), seconds=1)
            return rig

    assert [
        c.body["status"]["conditions"][0]["status"] for c in run_virtual(main()).cluster.calls
    ] == [
        "True",
        "False",
    ]


def test_a_known_child_is_applied_by_uid_without_a_look() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.deployment())
            made = rig.cluster.objects["Deployment", "default", "serve"]["metadata"]
            rig.source.shown["Deployment", "default", "serve"] = Seen(
                uid=made["uid"], generation=made["generation"], owner_uid="uid-serve"
            )
            await rig.write(do.deployment(replicas=2))
            return rig

    rig = run_virtual(main())
    assert [call.verb for call in rig.cluster.calls] == ["get", "apply", "apply"]
    assert "uid" not in rig.cluster.calls[1].body["metadata"]
    assert rig.cluster.calls[2].body["metadata"]["uid"] == "uid-serve"


def test_a_workload_whose_time_is_over_is_deleted_by_uid() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.put(
                ports.TRAINING_JOB, {"metadata": {"name": "train", "namespace": "default"}}
            )
            await rig.write(do.finish())
            return rig

    (call,) = run_virtual(main()).cluster.calls
    assert (call.verb, call.kind, call.uid) == ("delete", "TrainingJob", "uid-train")
