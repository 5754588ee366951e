# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TuningJob with the algorithm External on a fake API server whose trials end at every pause."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from builders_raw import Raw, raw_tuning_job
from fakes.apiserver import FakeApiServer, make_cluster
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.kube.client import K8sCluster
from ullage.ports import TUNING_JOB
from ullage.scheduling.tuning.search import Search
from ullage_katib.bridge import BridgeOptions, KatibBridge
from ullage_katib.messages import KatibAlgorithm
from ullage_katib.service import KatibService, SuggestionCalls

NAMESPACE = "default"
NAME = "digits"
LAST = 9
SPACE: list[Raw] = [
    {"name": "lr", "type": "Float", "min": "1e-4", "max": "0.1", "log": True},
    {"name": "width", "type": "Int", "min": 16, "max": 256, "step": 16},
    {"name": "drop", "type": "Float", "min": "0", "max": "0.5", "step": "0.1"},
    {"name": "momentum", "type": "Float", "min": "0.05", "max": "0.95", "step": "0.3"},
    {"name": "act", "type": "Categorical", "values": ["relu", "tanh"]},
]
"""Every kind of parameter that there is."""
Score = Callable[[Mapping[str, str]], float | None]


def score(parameters: Mapping[str, str]) -> float | None:
    """Best near lr 0.01, with few dropped."""
    return -abs(math.log10(float(parameters["lr"])) + 2) - float(parameters["drop"])


@dataclass(slots=True, kw_only=True)
class KatibRig:
    """The TuningJob, and what became of it.

    Attributes:
        score: Metric of a trial; ``None`` = it fails.
        reason: Why a trial fails.
        stuck: Nothing ends.
        at_pause: Called before trials end.
    """

    api: FakeApiServer
    cluster: K8sCluster
    score: Score = score
    reason: str = "TrialFailed"
    stuck: bool = False
    at_pause: Callable[[], None] = lambda: None
    pauses: list[float] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def job(self) -> Raw:
        found = self.api.get(TUNING_JOB, NAME, NAMESPACE)
        assert found is not None
        return found

    @property
    def suggestions(self) -> list[Raw]:
        found: list[Raw] = self.job["spec"].get("suggestions") or []
        return found

    @property
    def ended(self) -> bool:
        return bool(self.job["spec"].get("suggestionsEnded"))

    def edit(self, **spec: object) -> None:
        self.api.edit(TUNING_JOB, NAME, {"spec": spec}, NAMESPACE)

    async def pause(self, seconds: float) -> None:
        """Trials that run end while a bridge pauses."""
        self.pauses.append(seconds)
        self.at_pause()
        if not self.stuck and self.api.get(TUNING_JOB, NAME, NAMESPACE) is not None:
            self.end_trials()

    def end_trials(self) -> None:
        job = self.job
        record = project_tuning_job(job)
        search = Search(terms=record.terms).take_all(record.status.results)
        self.most_at_once = max(self.most_at_once, len(search.due))
        stated = {one["trial"]: one["parameters"] for one in self.suggestions}
        results = list(job["status"].get("results", ()))
        for trial, epoch in search.due.items():
            value = self.score(stated[trial])
            said = {"reason": self.reason} if value is None else {"value": repr(value)}
            results.append({"trial": trial, "epoch": epoch, **said})
        self.api.edit(TUNING_JOB, NAME, {"status": {"results": results}}, NAMESPACE)

    def bridge(
        self, service: SuggestionCalls, algorithm: str = "random", **given: Any
    ) -> KatibBridge:
        settings = given.pop("settings", ())
        options = BridgeOptions(
            namespace=NAMESPACE,
            name=NAME,
            algorithm=KatibAlgorithm(name=algorithm, settings=settings),
            **given,
        )
        return KatibBridge(self.cluster, service, options, self.pause)

    async def run(
        self, address: str, algorithm: str = "random", *, deadline_s: float = 30.0, **given: Any
    ) -> None:
        """Run a bridge to its end, with a connection of its own."""
        async with KatibService(address, deadline_s) as service:
            await self.bridge(service, algorithm, **given).run()


@asynccontextmanager
async def katib_rig(**spec: object) -> AsyncIterator[KatibRig]:
    """A TuningJob of 12 trials, four at once."""
    given: dict[str, object] = {
        "algorithm": {"ref": "External", "maxEpochs": LAST},
        "searchSpace": SPACE,
        "trials": 12,
        "parallelism": 4,
    }
    async with FakeApiServer() as api, make_cluster(api.url) as cluster:
        job = raw_tuning_job(NAME, **{**given, **spec})
        job["metadata"]["namespace"] = NAMESPACE
        api.put(TUNING_JOB, job)
        yield KatibRig(api=api, cluster=cluster)
