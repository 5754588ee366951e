# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State of one process, leading or not: the snapshot, the Lease, clocks and counters.

Nothing in this module may outlive a leadership wrongly: assumptions, queued writes and learned data
belong to a :class:`ullage.app.term.Term`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ullage.app.api_backpressure import ApiBackpressure
from ullage.app.learner import Learner
from ullage.app.loop import LoopStats
from ullage.app.outcomes import Outcomes
from ullage.app.settings import Settings
from ullage.app.solver import Solver
from ullage.app.trigger import Trigger
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.handlers.frame import KopfFrame
from ullage.handlers.mirror import Mirror
from ullage.handlers.pool_watch import PoolWatch
from ullage.kube.lease import Lease
from ullage.kube.reflector import Reflector
from ullage.kube.writer.writer import WriterStats
from ullage.metrics.collector import SectionGuard
from ullage.ports import Clock, ClusterPort
from ullage.process.supervised import TaskSupervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters of the metrics over all leaderships of a process."""

    loop: LoopStats = field(default_factory=LoopStats)
    writer: WriterStats = field(default_factory=WriterStats)
    outcomes: Outcomes = field(default_factory=Outcomes)
    guard: SectionGuard = field(default_factory=SectionGuard)
    """Figures that could not be gathered."""
    price_answers: Counter[str] = field(default_factory=Counter)
    """Price queries of pools by result: read, unreadable or unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of the operator.

    Attributes:
        mirror: Objects with lives, for kopf.
        pool_watch: Watches the instances of pools, on a standby, too.
        frame: kopf; it runs only during a leadership.
        solver: Its child stays warm while another replica leads.
        learner: Its process stays warm as well; it runs only during a leadership.
    """

    settings: Settings
    cluster: ClusterPort
    clock: Clock
    state: ClusterState
    reflectors: Sequence[Reflector]
    lease: Lease
    trigger: Trigger
    api_backpressure: ApiBackpressure
    supervisor: TaskSupervisor
    counters: Counters
    mirror: Mirror
    frame: KopfFrame
    pool_watch: PoolWatch
    solver: Solver
    learner: Learner

    def synced(self) -> bool:
        """The snapshot is complete and in sync with the API server."""
        return all(reflector.synced for reflector in self.reflectors)

    def is_leader(self) -> bool:
        """This replica holds the Lease, and its snapshot is complete."""
        return self.lease.held and self.synced()

    def leader_snapshot(self) -> Snapshot | None:
        """The snapshot, where this replica leads."""
        return self.state.freeze(self.clock.now()) if self.is_leader() else None

    def epoch(self) -> int | None:
        """Epoch of this leader; ``None`` where it does not lead."""
        return self.lease.epoch if self.lease.held else None

    def decision_age_s(self) -> float:
        """Seconds since the last decision of this leadership, or its start; 0 on a standby."""
        if not self.lease.held:
            return 0.0
        return self.clock.monotonic() - self.counters.loop.last_completed
