# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An object that makes decisions fail is found by halves, set aside, and tried again later."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from builders import NOW, a_gpu_node, a_job, a_node, a_snapshot
from ullage.app import solver as solver_module
from ullage.app.set_aside import CHANCES, Search, SetAside
from ullage.app.solver import Solver, SolverCrashed, solve
from ullage.app.times import ASIDE_FIRST_S, ASIDE_MOST_S, FAULT_SEARCH_REST_S
from ullage.app.transfer import unpack_answer
from ullage.app.watchdog import Watchdog
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.assignment import judge
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.faults import WORKLOADS, Fault, Subject
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.plan import Action, CreatePod, DecideSettings, Plan
from ullage.scheduling.model.view import View

SETTINGS = DecideSettings(epoch=1)
BAD = "uid-one-bad"


def cluster(*bad: str, jobs: int = 20, version: int = 1) -> Snapshot:
    work = [a_job(f"job-{at}", "two") for at in range(jobs)]
    return a_snapshot(
        a_gpu_node(), *work[: jobs // 2], *(a_job(one, "one") for one in bad), *work[jobs // 2 :],
        version=version,
    )  # fmt: skip


def searched(snapshot: Snapshot, fails: Callable[[Snapshot], bool], **how: bool) -> Search:
    """A search to its end; ``fails`` says whether a decision with these objects fails."""
    order = [(WORKLOADS, uid) for uid in snapshot.workloads]
    search = Search(order, 0, confirm=how.get("confirm", False))
    for _ in range(50):
        if search.over:
            return search
        paused = {uid for _, uid in search.paused}
        left = {uid: one for uid, one in snapshot.workloads.items() if uid not in paused}
        search.ended(good=not fails(replace(snapshot, workloads=left)))
    raise AssertionError("it never ends")


@pytest.mark.parametrize("at", range(21))
@pytest.mark.parametrize("confirm", [False, True])
def test_the_one_at_fault_is_found_wherever_it_stands(at: int, confirm: bool) -> None:
    snapshot = cluster("bad")
    uid = list(snapshot.workloads)[at]
    found = searched(snapshot, lambda left: uid in left.workloads, confirm=confirm)
    assert found.found == (WORKLOADS, uid)


def test_where_nothing_helps_no_object_is_blamed() -> None:
    assert searched(cluster("bad"), lambda _: True).found is None


def test_work_that_only_adds_up_is_not_blamed_for_the_time() -> None:
    crowded = searched(cluster(), lambda left: len(left.workloads) > 15, confirm=True)
    assert crowded.over
    assert crowded.found is None


class Memory:
    """A memory, and decisions that fail with an object."""

    def __init__(self, *, answered: bool) -> None:
        self.aside = SetAside()
        self.answered = answered
        self.now = NOW
        self.decisions = 0

    def decide(self, snapshot: Snapshot, bad: str = BAD) -> bool:
        """One decision; says whether it was made."""
        self.decisions += 1
        left_out = {one.key for one in self.aside.of(snapshot, self.now)}
        if bad in snapshot.workloads and bad not in left_out:
            self.aside.failed(snapshot, self.now, "RuntimeError: no", answered=self.answered)
            return False
        told = [one for one in self.aside.of(snapshot, self.now) if one.text]
        self.aside.decided(snapshot, told, self.now)
        return True

    def settle(self, snapshot: Snapshot) -> None:
        """Decide until all that can be is decided."""
        for _ in range(60):
            if self.decide(snapshot) and not self.aside.searching:
                return
        raise AssertionError("it never rests")


@pytest.mark.parametrize("answered", [True, False])
def test_one_of_thousands_is_found_in_few_decisions(answered: bool) -> None:
    memory = Memory(answered=answered)
    memory.settle(cluster("bad", jobs=2000))
    assert memory.aside.in_force() == {WORKLOADS: 1}
    assert memory.decisions <= 20


def test_what_changed_since_the_last_good_decision_is_looked_at_first() -> None:
    memory = Memory(answered=True)
    before = cluster(jobs=2000)
    memory.settle(before)
    job = a_job("bad", "one").build()
    after = replace(before, workloads={BAD: job, **before.workloads})
    memory.decisions = 0
    memory.settle(after)
    assert memory.aside.in_force() == {WORKLOADS: 1}
    assert memory.decisions <= 6


def test_a_decision_that_is_late_once_starts_no_search() -> None:
    memory = Memory(answered=False)
    for _ in range(CHANCES - 1):
        memory.decide(cluster("bad"))
    assert not memory.aside.searching
    memory.decide(cluster("bad"))
    assert memory.aside.searching


def probes_until_found(memory: Memory, snapshot: Snapshot, bad: str, **how: bool) -> list[bool]:
    """Whether each decision of a search leaves out machines or settings and so does nothing."""
    kinds = list[bool]()
    for _ in range(40):
        left_out = {one.key for one in memory.aside.of(snapshot, memory.now)}
        if memory.aside.searching:
            kinds.append(memory.aside.probes)
        if bad not in left_out:
            memory.aside.failed(snapshot, memory.now, "no", answered=False, **how)
        else:
            told = [one for one in memory.aside.of(snapshot, memory.now) if one.text]
            memory.aside.decided(snapshot, told, memory.now)
        if memory.aside.in_force():
            return kinds
    raise AssertionError("it is never found")


@pytest.mark.parametrize("late", [True, False])
def test_every_decision_of_a_search_among_work_serves_the_rest(late: bool) -> None:
    memory, snapshot = Memory(answered=False), cluster("bad", jobs=40)
    kinds = probes_until_found(memory, snapshot, BAD, late=late)
    assert kinds
    assert True not in kinds
    assert memory.aside.in_force() == {WORKLOADS: 1}


def test_a_machine_is_searched_for_once_work_is_not_at_fault() -> None:
    memory, snapshot = Memory(answered=False), cluster(jobs=40)
    kinds = probes_until_found(memory, snapshot, "node-1")
    assert kinds[:2] == [False, True]
    assert memory.aside.in_force() == {"gpu_nodes": 1}


@pytest.mark.parametrize("jobs", [0, 40])
def test_decisions_that_are_late_set_no_machine_and_no_policy_aside(jobs: int) -> None:
    aside, snapshot, now = SetAside(), cluster(jobs=jobs), NOW
    for _ in range(60):
        assert not [one for one in aside.of(snapshot, now) if one.table != WORKLOADS]
        aside.failed(snapshot, now, "no decision within 5 s", answered=False, late=True)
        assert not aside.in_force()
        now += FAULT_SEARCH_REST_S / 10


def test_two_that_are_late_alike_are_set_aside_and_nothing_is_searched() -> None:
    aside, snapshot = SetAside(), cluster(*"ab")
    text = "Late: not decided within 0.8 s of computing"
    late = [Fault(table=WORKLOADS, key=f"uid-one-{name}", text=text, late=True) for name in "ab"]
    aside.decided(snapshot, late, NOW)
    assert not aside.searching
    assert aside.in_force() == {WORKLOADS: 2}


def test_an_object_that_was_edited_is_tried_again_at_once() -> None:
    memory = Memory(answered=True)
    memory.settle(cluster("bad"))
    snapshot = cluster("bad")
    edited = replace(snapshot.workloads[BAD], generation=2)
    snapshot = replace(snapshot, workloads={**snapshot.workloads, BAD: edited})
    assert memory.aside.of(snapshot, memory.now) == ()


def test_it_is_tried_again_after_a_while_and_then_for_longer_without() -> None:
    memory = Memory(answered=False)
    snapshot = cluster("bad")
    memory.settle(snapshot)
    for wait_s in (
        ASIDE_FIRST_S,
        2 * ASIDE_FIRST_S,
        4 * ASIDE_FIRST_S,
        8 * ASIDE_FIRST_S,
        ASIDE_MOST_S,
        ASIDE_MOST_S,
    ):
        memory.now += wait_s - 1
        assert memory.decide(snapshot), "set aside until then"
        memory.now += 1
        assert not memory.decide(snapshot)
        assert memory.decide(snapshot), "set aside again without another search"
    assert memory.aside.faults == {WORKLOADS: 1}


def test_what_is_mended_is_no_longer_set_aside() -> None:
    memory = Memory(answered=True)
    snapshot = cluster("bad")
    memory.settle(snapshot)
    memory.now += ASIDE_FIRST_S
    assert memory.decide(snapshot, bad="another")
    assert memory.aside.in_force() == {}


def test_an_object_that_is_gone_is_forgotten() -> None:
    memory = Memory(answered=True)
    memory.settle(cluster("bad"))
    assert memory.aside.of(cluster(), memory.now) == ()
    assert memory.aside.in_force() == {}


def test_a_search_without_a_result_rests() -> None:
    aside, snapshot = SetAside(), cluster()
    for _ in range(4):
        aside.failed(snapshot, NOW, "RuntimeError: no", answered=True)
    assert not aside.searching
    assert not aside.failed(
        snapshot, NOW + FAULT_SEARCH_REST_S - 1, "RuntimeError: no", answered=True
    )
    assert aside.failed(snapshot, NOW + FAULT_SEARCH_REST_S, "RuntimeError: no", answered=True)


def alike(snapshot: Snapshot, because: Subject | None) -> SetAside:
    """What is remembered after jobs a to d fail alike, for themselves or because of an object."""
    aside = SetAside()
    for _ in range(30):
        left_out = {one.subject for one in aside.of(snapshot, NOW)}
        told = [one for one in aside.of(snapshot, NOW) if one.text]
        if because is None or because not in left_out:
            bad = ((WORKLOADS, f"uid-one-{name}") for name in "abcd")
            told += [
                Fault(table=table, key=key, text="ValueError: a price is below 0")
                for table, key in bad
                if (table, key) not in left_out
            ]
        aside.decided(snapshot, told, NOW)
        if not aside.hurries:
            return aside
    raise AssertionError("it never rests")


@pytest.mark.parametrize("because", [("policy", "default"), ("gpu_nodes", "node-1")])
def test_what_many_fail_for_is_set_aside_instead_of_them(because: Subject) -> None:
    aside = alike(cluster(*"abcd"), because)
    assert aside.in_force() == {because[0]: 1}
    (news,) = aside.news()
    assert news.subject == because


def test_many_that_fail_alike_for_themselves_stay_set_aside() -> None:
    aside = alike(cluster(*"abcd"), None)
    assert aside.in_force() == {WORKLOADS: 4}
    assert len(aside.news()) == 4


# -- in the process that decides -------------------------------------------------------------------


def unattributed(payload: bytes) -> bytes:
    """Decides; fails with the bad job present, and nothing says why."""
    _, _, settings = pickle.loads(payload)
    if BAD not in {one.key for one in settings.aside}:
        raise RuntimeError("a matrix is singular")
    return solve(payload)


async def test_decisions_are_carried_out_while_a_common_cause_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [a_gpu_node(f"node-{at}") for at in range(40)]
    kube_nodes = [a_node(one.name) for one in nodes]
    snapshot = a_snapshot(
        *nodes, *kube_nodes, *(a_job(name, "one") for name in "ab"), a_job("new", "two")
    )
    solver, searching = Solver(deadline_s=0.0), 0  # each run has time for one decision

    async def fails_alike(
        snapshot: Snapshot, now: float, settings: DecideSettings
    ) -> tuple[Plan, tuple[Action, ...]]:
        left_out = {one.key for one in settings.aside}
        bad = [uid for uid in ("uid-one-a", "uid-one-b") if uid not in left_out]
        found = tuple(Fault(table=WORKLOADS, key=uid, text="ValueError: odd") for uid in bad)
        plan = decide(snapshot, now, replace(settings, aside=(*settings.aside, *found)))
        return plan, diff(plan, snapshot)

    monkeypatch.setattr(solver, "_once", fails_alike)
    for _ in range(20):
        _, actions = await solver.run(snapshot, NOW, SETTINGS)
        made = {one.owner.name for one in actions if isinstance(one, CreatePod)}
        assert made == {"new"}
        searching += solver.aside.searching
        if not solver.aside.searching:
            break
    assert searching
    assert solver.aside.in_force() == {WORKLOADS: 2}


def dies(payload: bytes) -> bytes:
    _, _, settings = pickle.loads(payload)
    if BAD not in {one.key for one in settings.aside}:
        os._exit(9)
    return solve(payload)


@pytest.mark.slow
async def test_a_failure_that_nothing_explains_is_found_within_one_cycle() -> None:
    solver, snapshot = Solver(deadline_s=60, work=unattributed), cluster("bad")
    try:
        plan, actions = await solver.run(snapshot, NOW, SETTINGS)
    finally:
        solver.close()
    assert [one.key for one in plan.faults] == [BAD]
    assert "a matrix is singular" in plan.faults[0].text
    assert plan.statuses["uid-two-job-3"].phase
    assert "DecisionFailed" in {one.reason.value for one in actions}


@pytest.mark.slow
async def test_an_object_that_kills_the_process_stops_the_others_for_a_while_only() -> None:
    solver, snapshot = Solver(deadline_s=60, work=dies), cluster("bad", jobs=6)
    plans: list[Plan] = []
    try:
        for _ in range(16):
            with suppress(SolverCrashed):
                plans.append((await solver.run(snapshot, NOW, SETTINGS))[0])
            if plans and plans[-1].faults:
                break
    finally:
        solver.close()
    assert [one.key for one in plans[-1].faults] == [BAD]
    assert "process died" in plans[-1].faults[0].text
    assert any("uid-two-job-0" in one.statuses for one in plans[:-1]), "others go on meanwhile"


def _payload(snapshot: Snapshot) -> bytes:
    return pickle.dumps((snapshot, NOW, SETTINGS))


@pytest.mark.slow
def test_a_workload_that_is_looked_at_for_ever_is_set_aside_in_the_same_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = judge.training_step

    def life(view: View, ground: Inventory, job: WorkloadRecord) -> LifecycleStep:
        while job.ref.uid == BAD:
            pass
        return really(view, ground, job)

    monkeypatch.setattr(judge, "training_step", life)
    plan, _ = unpack_answer(solve(_payload(cluster("bad"))), cluster("bad"))
    assert [one.key for one in plan.faults] == [BAD]
    assert "not decided within" in plan.faults[0].text
    assert plan.statuses["uid-two-job-3"].phase


def test_long_work_on_all_together_is_interrupted_by_no_watchdog() -> None:
    with Watchdog(cluster("bad"), patience_s=0.03):
        until = time.process_time() + 0.15
        while time.process_time() < until:
            pass


def test_an_exception_that_no_pipe_carries_is_told_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("odd")

    def fail(*_: object) -> None:
        raise Odd(1, 2)

    monkeypatch.setattr(solver_module, "diff", fail)
    with pytest.raises(solver_module.Undecided, match="Odd: odd") as caught:
        solve(_payload(a_snapshot()))
    assert str(pickle.loads(pickle.dumps(caught.value))) == "Odd: odd"


def test_a_fault_travels_without_its_trace() -> None:
    aside = SetAside()
    fault = Fault(table=WORKLOADS, key=BAD, text="no", trace="line 1")
    aside.decided(cluster("bad"), [fault], NOW)
    assert aside.of(cluster("bad"), NOW) == (fault,)
    assert aside.of(cluster("bad"), NOW)[0].trace == ""
