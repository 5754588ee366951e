# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What users of the soaked cluster do: create, edit, finish and delete; some mean no good."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from bench.limits import template
from ullage.api.labels import API_VERSION, LABEL_OWNER
from ullage.api.readers import section, text
from ullage.ports import (
    CAPACITY_POOL,
    INFERENCE_DEPLOYMENT,
    POD,
    SCHEDULING_POLICY,
    TRAINING_JOB,
    WORKLOAD_PROFILE,
    ApiError,
    ClusterPort,
    Conflict,
    Kind,
    Selector,
)

STEP_S: Final = 1.5
"""Between two acts, on average."""
MOST_ALIVE: Final = 40
NAMESPACES: Final = ("team-a", "team-b", "team-c")
NAMESPACE: Final = Kind(
    group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False
)
MANAGER: Final = "bench-soak"
LARGE_CHARACTERS: Final = 200_000
CLASSES: Final = 12
"""Classes of work that return; large templates are of their own."""

Body = dict[str, object]
Name = tuple[Kind, str, str]
"""Kind, namespace and name."""


def _nested(levels: int) -> object:
    """A list in a list in a list ..."""
    made: object = 0
    for _ in range(levels):
        made = [made]
    return made


class Churn:
    """One act after another, drawn from a seed."""

    def __init__(self, cluster: ClusterPort, *, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._random = random.Random(seed)
        self._alive: list[Name] = []
        self._made = 0

    @property
    def alive(self) -> int:
        """Workloads that exist."""
        return len(self._alive)

    async def run(self) -> None:
        """Act until cancelled; what the API refuses or does not answer is counted."""
        for name in NAMESPACES:
            with suppress(Conflict):
                await self._cluster.create(NAMESPACE, {"metadata": {"name": name}})
        await self._settings()
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * STEP_S)
            try:
                await self._act()
            except ApiError as error:
                self.counts[f"refused_{error.status}"] += 1

    def told(self) -> str:
        """What was done so far, in words."""
        said = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"alive {self.alive}, {said}"

    async def _act(self) -> None:
        dice = self._random.random()
        if dice < 0.03:
            return await self._settings()
        if not self._alive or (dice < 0.35 and self.alive < MOST_ALIVE):
            return await self._create()
        chosen = self._random.choice(self._alive)
        if dice < 0.70:
            return await self._edit(chosen)
        if dice < 0.85 and chosen[0] is TRAINING_JOB:
            return await self._finish(chosen)
        return await self._delete(chosen)

    async def _create(self) -> None:
        kind = self._random.choices((TRAINING_JOB, INFERENCE_DEPLOYMENT), (4, 1))[0]
        namespace = self._random.choice(NAMESPACES)
        self._made += 1
        name = f"soak-{self._made}"
        spec: Body = {"template": self._template(), **self._device(), **self._terms(kind)}
        await self._cluster.create(
            kind, {"metadata": {"name": name}, "spec": spec}, namespace=namespace
        )
        self._alive.append((kind, namespace, name))
        self.counts["created"] += 1

    def _device(self) -> Body:
        if self._random.random() < 0.4:
            return {"gpu": {"mode": "Exclusive", "count": 1}}
        least = self._random.choice((10, 25, 50))
        share = {"minPercent": least, "maxPercent": min(100, 2 * least)}
        return {"gpu": {"mode": "Fractional", "share": share, "memory": {"limit": "2Gi"}}}

    def _terms(self, kind: Kind) -> Body:
        if kind is INFERENCE_DEPLOYMENT:
            return {"replicas": self._random.randint(1, 2)}
        terms: Body = {
            "ttlSecondsAfterFinished": 20,
            "work": {"steps": self._random.choice((100_000, 10**12))},
        }
        dice = self._random.random()
        if dice < 0.2:
            return terms | {"elasticity": {"minReplicas": 1, "maxReplicas": 3}}
        return terms | ({"replicas": 2} if dice < 0.4 else {})

    def _template(self) -> Body:
        """A template; one in five is large, one in ten holds what cannot be read."""
        made = template()
        container: Body = made["spec"]["containers"][0]  # type: ignore[index]
        container["args"] = [f"class-{self._random.randrange(CLASSES)}"]
        container["ports"] = [{"containerPort": 8080}]
        dice = self._random.random()
        if dice < 0.2:
            filling = f"{self._random.random()}" * (LARGE_CHARACTERS // 20)
            container["env"] = [{"name": "FILLING", "value": filling}]
        elif dice < 0.3:
            container |= self._random.choice(
                (
                    {"resources": {"requests": {"cpu": "lots"}}},
                    {"resources": "none"},
                    {"ports": "http"},
                    {"image": {"name": "nothing"}},
                    {"args": [1, 2, 3]},
                    {"env": [{"name": {"a": 1}, "value": "x"}]},
                    {"resources": {"requests": {"cpu": "9" * 5000}}},
                    {"env": [{"name": "DEEP", "value": _nested(200)}]},
                )
            )
        return made

    async def _edit(self, chosen: Name) -> None:
        kind, namespace, name = chosen
        patch = [{"op": "replace", "path": "/spec/template", "value": self._template()}]
        await self._on(chosen, self._cluster.json_patch(kind, name, patch, namespace=namespace))
        self.counts["edited"] += 1

    async def _finish(self, chosen: Name) -> None:
        """All members of a job end well."""
        _, namespace, name = chosen
        members = Selector(namespace=namespace, labels=f"{LABEL_OWNER}={name}")
        async for page in self._cluster.list_paged(POD, members):
            for pod in page.items:
                if text(section(pod, "status"), "phase", "") == "Running":
                    await self._cluster.apply(
                        POD, text(section(pod, "metadata"), "name"),
                        {"status": {"phase": "Succeeded"}},
                        namespace=namespace, subresource="status", manager=MANAGER,
                    )  # fmt: skip
                    self.counts["finished"] += 1

    async def _delete(self, chosen: Name) -> None:
        kind, namespace, name = chosen
        await self._on(chosen, self._cluster.delete(kind, name, namespace=namespace))
        self._alive = [one for one in self._alive if one != chosen]
        self.counts["deleted"] += 1

    async def _on(self, chosen: Name, act: Awaitable[object]) -> None:
        """Await an act on a workload; one that has expired is no longer alive."""
        try:
            await act
        except ApiError as error:
            if error.status == 404:
                self._alive = [one for one in self._alive if one != chosen]
            raise

    async def _settings(self) -> None:
        """Policy, a pool and a profile change."""
        draw = self._random
        policy = {
            "objective": draw.choice(("MaxMinFairness", "Makespan", "MaxMinFairness")),
            "roundSeconds": draw.choice((60, 120)),
        }
        price = f"0.{draw.randrange(10, 99)}"
        pool = {
            "type": "fake.large", "zone": "z", "capacityType": "Spot", "accelerator": "emulated",
            "nodeSelector": {"pool": "soak"},
            "priceSource": {"type": "Static", "static": {"pricePerHour": price}},
        }  # fmt: skip
        workload_class = f"soak-{draw.randrange(CLASSES)}"
        solo = [{"device": "emulated", "share": 100, "smUtil": draw.randrange(1, 10) / 10}]
        for kind, name, spec in (
            (SCHEDULING_POLICY, "default", policy),
            (CAPACITY_POOL, "soak", pool),
            (WORKLOAD_PROFILE, workload_class, {"class": workload_class, "solo": solo}),
        ):
            namespace = draw.choice(NAMESPACES) if kind.namespaced else ""
            body = {"apiVersion": API_VERSION, "metadata": {"name": name}, "spec": spec}
            await self._cluster.apply(kind, name, body, namespace=namespace, manager=MANAGER)
        self.counts["settings"] += 1
