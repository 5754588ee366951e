# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random stress on a toy cluster, and what must hold whatever happens.

``StressRun(seed)`` makes a cluster, sends it events in random order with decisions in between whose
actions land only in part, and checks after each step. ``settle`` ends the events and waits until
nothing happens any more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import builders
from fakes import toy_rules
from fakes.toy_cluster import ToyCluster
from fakes.toy_world import Shape
from ullage.api.schedulingpolicy import RiskSettings
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, Plan

MOST_WORKLOADS = 12
MOST_SETTLE_STEPS = 600


class StressRun:
    """One seeded run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.toy = ToyCluster(seed, _shape(self.random))
        self.counts: Counter[str] = Counter()
        self.cache = CycleCache()
        self._numbers = 0
        self._events: dict[str, tuple[int, Callable[[], None]]] = {
            "create": (8, self._create),
            "delete": (3, self._delete),
            "fail": (4, self._fail),
            "succeed": (4, self._succeed),
            "suspend": (2, self._suspend),
            "resume": (3, self._resume),
            "new template": (1, self._new_template),
            "delete pod": (3, self._delete_pod),
            "terminate": (14, self._terminate),
            "schedule": (14, self._schedule),
            "start": (14, self._start),
            "lose race": (2, self._lose_race),
            "kubelet restart": (1, self._kubelet_restart),
            "refuse": (2, self._refuse),
            "sync agent": (18, self._sync),
            "agent down": (1, self._agent_down),
            "agent restart": (3, self._agent_restart),
            "fail slice": (1, self._fail_slice),
            "forget slice": (1, self._forget_slice),
            "lose node": (1, self._lose_node),
            "return node": (3, self._return_node),
            "remove node": (1, self._remove_node),
            "cordon": (1, self._cordon),
            "deployments": (6, self.toy.control_deployments),
            "leader": (1, self._leader),
            "time": (6, self._time),
        }
        self._names = list(self._events)
        self._weights = [self._events[name][0] for name in self._names]

    def run(self, events: int) -> None:
        """Random events with decisions in between."""
        for _ in range(events):
            name = self.random.choices(self._names, self._weights)[0]
            self._events[name][1]()
            self.counts[name] += 1
            if self.random.random() < 0.3:
                self.cycle(self.random.choice((1.0, 1.0, 0.8, 0.5)))

    def run_twice(self, seed: int, events: int) -> None:
        """Stress, rest, the second half of the stress, rest; a failure names the seed."""
        try:
            for _ in range(2):
                self.run(events // 2)
                self.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error

    def cycle(self, landing: float = 1.0) -> tuple[Plan, tuple[Action, ...]]:
        """One decision; every action lands with this probability."""
        snapshot = self.toy.snapshot()
        settings = DecideSettings(epoch=self.toy.epoch)
        plan = decide(snapshot, self.toy.now, settings, cache=self.cache)
        actions = diff(plan, snapshot)
        if self.counts["cycles"] % 3 == 0:
            alone = decide(snapshot, self.toy.now, settings)
            assert alone == plan, "a plan depends on what an earlier cycle left"
            assert diff(alone, snapshot) == actions
        toy_rules.check_actions(snapshot, actions)
        self.toy.apply(actions, lambda _: landing >= 1.0 or self.random.random() < landing)
        self.counts["cycles"] += 1
        self.check()
        return plan, actions

    def check(self) -> None:
        """What must hold at any moment."""
        toy_rules.check_devices(self.toy)

    def settle(self) -> None:
        """Stop the weather; everything must come to rest, and nothing be left behind.

        Now and then one agent stays away for good, while its node says that it is well.
        """
        toy = self.toy
        away = self._node() if self.random.random() < 0.25 else ""
        for name in list(toy.nodes):
            toy.nodes[name] = replace(toy.nodes[name], ready=True, unschedulable=False)
            toy.agents[name].up, toy.agents[name].refuse_next = name != away, 0
        for _ in range(MOST_SETTLE_STEPS):
            before = self._fingerprint()
            toy.move()
            toy.control_deployments()
            plan, actions = self.cycle()
            if actions or self._fingerprint() != before:
                toy.now += 1
            elif plan.wake_at > toy.now:
                toy.now = plan.wake_at
            else:
                break
        else:
            raise AssertionError("the cluster does not come to rest")
        toy_rules.check_rest(toy)

    def _fingerprint(self) -> object:
        toy = self.toy
        return (
            dict(toy.pods),
            {name: replace(one, heartbeat=0.0) for name, one in toy.gpu_nodes.items()},
            {uid: one.status for uid, one in toy.workloads.items()},
        )

    # -- events ---------------------------------------------------------------------------------

    def _create(self) -> None:
        if len(self.toy.workloads) < MOST_WORKLOADS:
            self._numbers += 1
            self.toy.add(_workload(self.random, self._numbers, self.toy.now))

    def _delete(self) -> None:
        if self.toy.workloads:
            self.toy.delete_workload(self.random.choice(sorted(self.toy.workloads)))

    def _pod(self, *stages: PodStage) -> PodRecord | None:
        found = [one for one in self.toy.pods.values() if not stages or one.stage in stages]
        return self.random.choice(found) if found else None

    def _training_pod(self, *stages: PodStage) -> PodRecord | None:
        found = [one for one in self.toy.pods.values() if one.stage in stages and one.rank >= 0]
        return self.random.choice(found) if found else None

    def _fail(self) -> None:
        pod = self._training_pod(PodStage.RUNNING)
        if pod is not None:
            self.toy.finish(pod, self.random.choice((1, 2, 137)))

    def _succeed(self) -> None:
        pod = self._training_pod(PodStage.RUNNING)
        if pod is not None:
            self.toy.finish(pod, 0)

    def _change(self, **fields: object) -> None:
        jobs = [one for one in self.toy.workloads.values() if _trains(one)]
        if jobs:
            job = self.random.choice(jobs)
            changed = replace(job, generation=job.generation + 1, **fields)  # type: ignore[arg-type]
            self.toy.workloads[job.ref.uid] = changed

    def _suspend(self) -> None:
        self._change(suspend=True)

    def _resume(self) -> None:
        self._change(suspend=False)

    def _new_template(self) -> None:
        if self.toy.workloads:
            one = self.toy.workloads[self.random.choice(sorted(self.toy.workloads))]
            version = f"v{one.generation}"
            self.toy.workloads[one.ref.uid] = replace(
                one, generation=one.generation + 1, template_hash=version
            )

    def _delete_pod(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.toy.delete_pod(pod)

    def _terminate(self) -> None:
        for pod in list(self.toy.pods.values()):
            if self.random.random() < 0.5:
                self.toy.terminate(pod)

    def _schedule(self) -> None:
        for pod in list(self.toy.pods.values()):
            if self.random.random() < 0.7:
                self.toy.schedule(pod)

    def _start(self) -> None:
        for pod in list(self.toy.pods.values()):
            if self.random.random() < 0.7:
                self.toy.start(pod)

    def _lose_race(self) -> None:
        pod = self._pod(PodStage.BOUND)
        if pod is not None:
            self.toy.lose_race(pod)

    def _kubelet_restart(self) -> None:
        node = self._node()
        for pod in list(self.toy.pods.values()):
            if pod.node == node and pod.stage is PodStage.BOUND:
                self.toy.lose_race(pod)

    def _node(self) -> str:
        return self.random.choice(sorted(self.toy.nodes))

    def _refuse(self) -> None:
        self.toy.agents[self._node()].refuse_next += self.random.randint(1, 3)

    def _sync(self) -> None:
        self.toy.sync_agent(self._node())

    def _agent_down(self) -> None:
        self.toy.agents[self._node()].up = False

    def _agent_restart(self) -> None:
        agent = self.toy.agents[self._node()]
        agent.up = True
        agent.reboot()

    def _fail_slice(self) -> None:
        pod = self._pod(PodStage.RUNNING)
        if pod is not None and pod.node in self.toy.gpu_nodes:
            self.toy.agents[pod.node].fail(pod)

    def _forget_slice(self) -> None:
        """Someone edits a running slice out of the spec by hand."""
        pod = self._pod(PodStage.RUNNING)
        record = self.toy.gpu_nodes.get(pod.node) if pod is not None else None
        if pod is not None and record is not None:
            kept = tuple(one for one in record.desired if one.key.pod_uid != pod.uid)
            self.toy.gpu_nodes[pod.node] = replace(record, desired=kept)
            self.toy.edited_out.add(pod.uid)

    def _lose_node(self) -> None:
        self.toy.lose_node(self._node())

    def _return_node(self) -> None:
        name = self._node()
        self.toy.return_node(name)
        self.toy.nodes[name] = replace(self.toy.nodes[name], unschedulable=False)

    def _remove_node(self) -> None:
        if self.random.random() < 0.3:
            self.toy.remove_node(self._node())

    def _cordon(self) -> None:
        name = self._node()
        self.toy.nodes[name] = replace(self.toy.nodes[name], unschedulable=True)

    def _leader(self) -> None:
        """The leader dies in the middle of its writes; the next one has a higher epoch."""
        self.cycle(self.random.random())
        self.toy.epoch += 1

    def _time(self) -> None:
        self.toy.now += self.random.choice((0.2, 1.0, 5.0, 31.0, 61.0, 200.0))


def _trains(one: WorkloadRecord) -> bool:
    return one.kind is WorkloadKind.TRAINING_JOB


def _shape(chance: random.Random) -> Shape:
    solo = SoloEntry(device=builders.MODEL, share=100, sm_util=0.4)
    return Shape(
        nodes=chance.randint(2, 4),
        devices=chance.randint(1, 3),
        contexts=chance.randint(2, 4),
        overhead_mib=chance.choice((0, 300)),
        policy=PolicyRecord(
            max_percent_sum=chance.choice((100, 100, 150)),
            gang_skip_limit=chance.randint(0, 2),
            risk=RiskSettings(predictor="Learned" if chance.random() < 0.5 else "UtilisationSum"),
            trust_domains=dict.fromkeys(("red", "blue"), frozenset({"default"})),
        ),
        profiles=(builders.a_profile("light", solo),),
    )


def _workload(chance: random.Random, number: int, now: float) -> WorkloadRecord:
    """A random wish; most can be met, some never."""
    serving = chance.random() < 0.25
    name = f"w{number}"
    wish = builders.a_service(name) if serving else builders.a_job(name)
    wish = wish.with_(created=now, priority=chance.choice((0, 0, 0, 1, 2)))
    wish = wish.with_(workload_class=f"class-{number % 4}")
    wish = wish.replicas(chance.choice((1, 1, 1, 2, 2, 3)))
    if chance.random() < 0.5:
        wish = wish.exclusive(chance.choice((1, 1, 1, 2)))
    else:
        least = chance.choice((10, 25, 30, 50))
        most = chance.choice((least, 50, 60, 100))
        memory = chance.choice((0, 0, 2048, 9000, 40_000 if chance.random() < 0.2 else 4000))
        wish = wish.fractional(least, max(least, most), memory_mib=memory)
        if chance.random() < 0.5:
            wish = wish.profile("light")
    if chance.random() < 0.3:
        wish = wish.slowdown(chance.choice((1.2, 1.5, 2.0, 3.0)))
    if chance.random() < 0.5:
        wish = wish.checkpointed()
    if chance.random() < 0.3:
        wish = wish.trusting(chance.choice(("red", "blue")))
    if chance.random() < 0.05:
        wish = wish.on("no-such-gpu")
    if not serving:
        wish = wish.failure(chance.choice((0, 1, 3)), *chance.choice(((), (1,))))
        if chance.random() < 0.3:
            wish = wish.with_(ttl_seconds_after_finished=30)
    return wish.build()
