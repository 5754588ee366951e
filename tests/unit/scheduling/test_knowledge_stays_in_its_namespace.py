# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a tenant declares or measures says nothing of another namespace's work, unless shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import NOW, a_device, a_gpu_node, a_job, a_policy, a_profile, a_snapshot
from fakes.deciding import SETTINGS
from ullage.api.observations import Observation, ObservedPartner
from ullage.api.schedulingpolicy import Knowledge
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus, SoloEntry, StepRow
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.features import class_features
from ullage.engines.admission.records import ClassProfile, Fingerprint, Partner
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.inventory.inventory import take_inventory
from ullage.scheduling.learning.estimates import gather
from ullage.scheduling.learning.loop import profiles_to_write
from ullage.scheduling.learning.throughput import Throughputs
from ullage.scheduling.model.plan import SetProfile
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.prediction.rows import class_profiles, rows_of
from ullage.scheduling.prediction.workload_classes import Classes

MODEL = "emulated"
QUIET, LOUD = Fingerprint(sm=0.1, dram=0.1), Fingerprint(sm=0.9, dram=0.9)


def policy(*, shared: tuple[str, ...] = (), trusted: tuple[str, ...] = ()) -> PolicyRecord:
    return a_policy(knowledge=Knowledge(shared=frozenset(shared), trusted=frozenset(trusted)))


def windows(count: int, partner: str = "bert") -> tuple[StepRow, ...]:
    return tuple(
        StepRow(
            id=f"{partner}/{number}",
            accelerator=MODEL,
            share=50,
            step_s=0.02,
            slowdown=2.0,
            at_s=NOW + number,
            partners=(Partner(workload_class=partner, percent=50),),
        )
        for number in range(count)
    )


def alone(print_: Fingerprint, speed: float = 100.0) -> SoloEntry:
    return SoloEntry(device=MODEL, share=100, steps_per_second=speed, fingerprint=print_)


def measured(namespace: str, rows: int = 3, print_: Fingerprint = LOUD) -> ProfileRecord:
    """What the agents saw of class resnet in a namespace."""
    status = ProfileStatus(solo=(alone(print_),), step_time=windows(rows), family="f")
    return replace(a_profile("seen", workload_class="resnet"), namespace=namespace, status=status)


def declared(namespace: str, rows: int = 64, print_: Fingerprint = QUIET) -> ProfileRecord:
    """What a tenant writes of class resnet."""
    return replace(
        a_profile("said", workload_class="resnet"),
        namespace=namespace,
        family="f",
        solo=(alone(print_, speed=900.0),),
        step_time=windows(rows, "x"),
    )


def profile_for(snapshot: Snapshot, namespace: str) -> ClassProfile:
    """What admission goes by for a job of class resnet."""
    job = a_job("train", namespace).with_(workload_class="resnet", family="f").build()
    view = look(snapshot, NOW, SETTINGS, Ledger(snapshot))
    inventory = take_inventory(view)
    found = Classes(snapshot, inventory).of(job).tenants[inventory.models[MODEL]].profile
    assert found is not None
    return found


def world(*profiles: ProfileRecord, say: PolicyRecord | None = None) -> Snapshot:
    return a_snapshot(a_gpu_node(), *profiles, say or policy())


def test_rows_that_another_namespace_declares_replace_no_fingerprint() -> None:
    found = profile_for(world(measured("tenant-a"), declared("tenant-b")), "tenant-a")
    assert (found.workload_class, found.fingerprint, found.rows) == ("tenant-a/resnet", LOUD, 3)


def test_a_namesake_of_another_namespace_is_an_unknown_class() -> None:
    snapshot = world(measured("tenant-a"))
    found = profile_for(snapshot, "tenant-b")
    assert (found.workload_class, found.family) == ("tenant-b/resnet", "tenant-b/f")
    assert (found.fingerprint, found.rows, found.curve) == (Fingerprint(), 0, None)
    assert set(class_profiles(snapshot, MODEL)) == {"tenant-a/resnet"}


def test_what_is_declared_speaks_for_its_own_namespace() -> None:
    found = profile_for(world(declared("tenant-b")), "tenant-b")
    assert (found.fingerprint, found.rows, found.declared) == (QUIET, 0, True)


def test_measured_figures_stand_above_declared_ones() -> None:
    both = replace(declared("tenant-a"), name="seen", status=measured("tenant-a").status)
    found = profile_for(world(both), "tenant-a")
    assert (found.fingerprint, found.rows, found.declared) == (LOUD, 3, False)


def test_only_measured_rows_teach_the_predictor() -> None:
    rows = rows_of(world(measured("tenant-a"), declared("tenant-b")), MODEL)
    assert {one.workload_class for one in rows} == {"tenant-a/resnet"}
    assert {one.partners[0].workload_class for one in rows} == {"tenant-a/bert"}
    assert {one.family for one in rows} == {"tenant-a/f"}


def test_a_partner_of_another_namespace_is_its_own_class() -> None:
    status = ProfileStatus(step_time=windows(2, "tenant-b/bert"))
    mine = replace(a_profile("seen", workload_class="resnet"), namespace="tenant-a", status=status)
    (row, _) = rows_of(world(mine), MODEL)
    assert row.partners[0].workload_class == "tenant-b/bert"


def test_the_administrator_lets_namespaces_share_what_was_measured() -> None:
    together = policy(shared=("tenant-a", "tenant-b"))
    snapshot = world(measured("tenant-a"), declared("tenant-b"), declared("tenant-c"), say=together)
    found = profile_for(snapshot, "tenant-b")
    assert (found.workload_class, found.fingerprint, found.rows) == ("*/resnet", LOUD, 3)
    assert profile_for(snapshot, "tenant-c").workload_class == "tenant-c/resnet"
    assert profile_for(snapshot, "tenant-c").fingerprint == QUIET


def test_a_declaration_is_not_shared_even_where_measurements_are() -> None:
    together = policy(shared=("*",))
    snapshot = world(declared("tenant-b"), say=together)
    assert profile_for(snapshot, "tenant-a").fingerprint == Fingerprint()
    assert profile_for(snapshot, "tenant-b").fingerprint == QUIET


def test_declarations_of_a_trusted_namespace_count_like_measurements() -> None:
    snapshot = world(declared("imports", rows=5), say=policy(trusted=("imports",)))
    assert len(rows_of(snapshot, MODEL)) == 5
    found = class_profiles(snapshot, MODEL)["imports/resnet"]
    assert (found.rows, found.declared) == (5, False)


def test_declared_figures_never_move_the_scale_of_measured_ones() -> None:
    seen = [
        ClassProfile(
            workload_class=f"a/{n}", family=f"a/{n}", fingerprint=Fingerprint(sm=0.1 * n), rows=9
        )
        for n in range(1, 6)
    ]
    wild = [
        ClassProfile(
            workload_class=f"b/{n}",
            family=f"b/{n}",
            fingerprint=Fingerprint(sm=1e6 * (n + 1)),
            declared=True,
        )
        for n in range(50)
    ]
    before, after = class_features(seen), class_features([*seen, *wild])
    assert np.array_equal(before, after[: len(seen)])


def other_speeds(namespace: str, **speeds: float) -> list[ProfileRecord]:
    """Classes of a namespace that were measured on several types."""
    return [
        replace(
            a_profile(f"ref-{n}", workload_class=f"ref-{n}"),
            namespace=namespace,
            status=ProfileStatus(
                solo=tuple(
                    SoloEntry(device=device, share=100, steps_per_second=rate * (n + 1), samples=9)
                    for device, rate in speeds.items()
                )
            ),
        )
        for n in range(3)
    ]


@pytest.mark.parametrize(("shared", "known"), [((), False), (("*",), True)])
def test_speeds_are_estimated_from_the_own_namespace(shared: tuple[str, ...], known: bool) -> None:
    node = a_gpu_node(devices=[a_device("GPU-1", model="k80"), a_device("GPU-2", model="v100")])
    snapshot = a_snapshot(node, *other_speeds("tenant-b", k80=1.0, v100=4.0), policy(shared=shared))
    stranger = a_job("train", "tenant-a").with_(workload_class="new").build()
    assert bool(Throughputs(snapshot).of(stranger)) is known
    native = a_job("train", "tenant-b").with_(workload_class="new").build()
    assert set(Throughputs(snapshot).of(native)) == {"k80", "v100"}
    scopes = gather(snapshot)
    assert set(scopes) == ({"*"} if known else {"tenant-b"})


def test_what_a_class_inflicts_elsewhere_is_booked_on_the_right_namespace() -> None:
    """A row of tenant-b beside tenant-a's class tells how loud tenant-a's is, not a namesake's."""
    victim = replace(
        a_profile("victim", workload_class="bert"),
        namespace="tenant-b",
        status=ProfileStatus(step_time=windows(1, "tenant-a/resnet")),
    )
    mine = [replace(measured(one, rows=1), uid=f"uid-{one}") for one in ("tenant-a", "tenant-b")]
    seen = tuple(
        Observation(
            id=f"new/{one.namespace}",
            workload_class="resnet",
            namespace=one.namespace,
            accelerator=MODEL,
            percent=50,
            step_micros=20_000,
            solo_step_micros=10_000,
            at_s=int(NOW) + 10,
            partners=(ObservedPartner(workload_class="bert", percent=50),),
        )
        for one in mine
    )
    node = replace(a_gpu_node(), observations=seen)
    lessons = profiles_to_write(a_snapshot(node, victim, *mine), NOW + 60, 7)
    loud = {
        one.target.namespace: one.status.interference[0].aggressiveness
        for one in lessons.actions
        if isinstance(one, SetProfile)
    }
    assert loud == {"tenant-a": pytest.approx(2.0), "tenant-b": None}
