# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lets the ranks of a job agree on the sizes of their batches, through the store of their group.

Every rank reports; rank 0 proposes sizes that begin at a batch that no rank has taken yet. A rank
that acknowledges a proposal promises to ask for the decision before it takes that batch. Rank 0
commits once all have acknowledged, and aborts where it reaches that batch first. With this
two-phase commit all ranks change at the same batch, even if some are ahead, and none waits for a
rank that does not take part.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from ullage.api.rebalancing import EvenReason
from ullage_run.uneven_plan import GAIN_LEAST, GAIN_SURE, divide, gain

HISTORY: Final = 512
"""Steps of which rank 0 knows the batch, to compare with other ranks."""
LEAD_BATCHES: Final = 3
LEAD_POLLS: Final = 2.5
"""A change begins so many batches, and batches of so many intervals of reports, ahead."""
LEAD_GROWTH_MOST: Final = 64
EVEN_GAIN_PATIENCE: Final = 2
"""Reports in a row that must show a gain below ``GAIN_SURE``."""
COMMIT: Final = b"1"
ABORT: Final = b"0"


class SharedStore(Protocol):
    """The store of a torch process group, as far as it is used here."""

    def check(self, keys: list[str], /) -> bool:
        """True if all keys are there."""
        ...

    def get(self, key: str, /) -> bytes:
        """Wait for a key; its value."""
        ...

    def set(self, key: str, value: str, /) -> None:
        """Set a key."""
        ...


class Position(NamedTuple):
    """A batch of the loader: which of its iterations, and which batch of that."""

    epoch: int
    batch: int


class SizePlan(NamedTuple):
    """Sizes of the ranks' batches from a batch on."""

    number: int
    start: Position
    sizes: tuple[int, ...]


class Report(NamedTuple):
    """State of a rank after a step."""

    step: int
    at: Position
    """Batch of that step, the last one where it took several."""
    plan: int
    """Number of the plan by which that batch was cut."""
    following: Position
    """The first batch that was not taken from the sampler yet."""
    data: str
    """Describes data and order of that iteration; the same on all ranks."""
    unit: float
    """Own time for a sample since the plan began, in seconds; 0 = not known yet."""
    batch_s: float
    """Time from batch to batch."""
    refusal: EvenReason = EvenReason.NONE


class Agreement:
    """One rank's side.

    Args:
        store: SharedStore that all ranks share.
        rank: Number of this rank.
        world: Number of ranks.
        even: Samples of each rank in an even division.
        poll_s: Interval of reports, seconds.
        session: Random word of rank 0; those of other ranks are not used.
    """

    def __init__(
        self, store: SharedStore, rank: int, world: int, even: int, *, poll_s: float, session: str
    ) -> None:
        self._store = store
        self._rank, self._world, self._even = rank, world, even
        self._poll_s = poll_s
        self._session = session if rank == 0 else ""
        self.current = SizePlan(0, Position(0, 0), (even,) * world)
        """The plan of the last batch that was taken."""
        self._pending: SizePlan | None = None
        self._committed = False
        self._acknowledged = 0
        self.refusal = EvenReason.NONE
        """Why batches stay even, for all ranks."""
        self._known: set[str] = set()
        # of rank 0
        self._history: deque[tuple[int, tuple[Position, int, str]]] = deque(maxlen=HISTORY)
        self._compared: set[int] = set()
        self._number = 0
        self._growth = 1
        self._seen_gain = 0

    def plan_at(self, position: Position) -> SizePlan:
        """The plan of a batch that is about to be taken; positions must not go back.

        It may wait for rank 0's decision, which that makes before it takes the same batch.
        """
        pending = self._pending
        if pending is not None and position >= pending.start:
            if not self._committed:
                if self._rank == 0:
                    self._decide(pending, commit=False)
                    self._growth = min(self._growth * 2, LEAD_GROWTH_MOST)
                elif self._store.get(self._decision(pending)) == COMMIT:
                    self._committed = True
            if self._committed:
                self.current = pending
            self._pending, self._committed = None, False
        return self.current

    def note(self, step: int, at: Position, plan: int, data: str) -> None:
        """Remember a step of this rank, to compare others with; as in its :class:`Report`."""
        if self._rank == 0:
            self._history.append((step, (at, plan, data)))

    def exchange(self, own: Report) -> None:
        """Report, and follow or lead.

        Args:
            own: State of this rank.
        """
        if self._rank == 0:
            self._lead(own)
        else:
            self._send(own)
            if self._follow(own):
                self._send(own)

    # -- all ranks but the first -----------------------------------------------------------------

    def _send(self, own: Report) -> None:
        body = [self._session, self._acknowledged, *own]
        self._store.set(f"report/{self._rank}", json.dumps(body))

    def _follow(self, own: Report) -> bool:
        """Read the newest plan; true where there is something to tell."""
        if not self._there("plan"):
            return False
        session, state, refusal, number, start, sizes = json.loads(self._store.get("plan"))
        if session != self._session:
            if self.current.number or self._pending is not None:
                return False  # rank 0 began again without this one
            self._session = session
            return True
        self.refusal = EvenReason(refusal)
        pending = self._pending
        if pending is not None:
            if number == pending.number and state != "proposed":
                if state == "committed":
                    self._committed = True
                else:
                    self._pending = None
            return False
        plan = SizePlan(number, Position(*start), tuple(sizes))
        if number > self._acknowledged and state == "proposed" and own.following <= plan.start:
            self._pending, self._acknowledged = plan, number
            return True
        return False

    def _there(self, key: str) -> bool:
        if key not in self._known and self._store.check([key]):
            self._known.add(key)
        return key in self._known

    def _decision(self, plan: SizePlan) -> str:
        return f"decision/{self._session}/{plan.number}"

    # -- the first rank --------------------------------------------------------------------------

    def _lead(self, own: Report) -> None:
        if "begun" not in self._known:
            self._known.add("begun")
            self._publish("committed", self.current)
        reports = [own, *self._others()]
        if len(reports) < self._world:
            return
        pending = self._pending
        if pending is not None:
            return  # decided, and not begun yet, or not acknowledged by all
        before = self.refusal
        self._compare(reports)
        self.refusal = next((report.refusal for report in reports if report.refusal), self.refusal)
        if self.refusal != before:
            self._publish("committed", self.current)
        if self.refusal:
            even = (self._even,) * self._world
            if self.current.sizes != even:
                self._propose(even, own)
        elif len(self._compared) == self._world - 1:
            sizes = self._better(reports)
            if sizes is not None:
                self._propose(sizes, own)

    def _others(self) -> list[Report]:
        """Reports of the others, in order; commits where all have acknowledged."""
        reports: list[Report] = []
        acknowledged: list[int] = []
        for rank in range(1, self._world):
            if not self._there(f"report/{rank}"):
                return []
            session, number, *parts = json.loads(self._store.get(f"report/{rank}"))
            if session != self._session:
                return []
            acknowledged.append(number)
            reports.append(_report(parts))
        pending = self._pending
        waiting = pending is not None and not self._committed
        if pending and waiting and all(number == pending.number for number in acknowledged):
            self._decide(pending, commit=True)
            self._committed = True
        return reports

    def _decide(self, plan: SizePlan, *, commit: bool) -> None:
        self._store.set(self._decision(plan), (COMMIT if commit else ABORT).decode())
        self._publish("committed" if commit else "aborted", plan)

    def _compare(self, reports: Sequence[Report]) -> None:
        """Hold the others' batches against those of this rank at the same step."""
        known = dict(self._history)
        for rank, report in enumerate(reports):
            if rank and report.step in known:
                if known[report.step] == (report.at, report.plan, report.data):
                    self._compared.add(rank)
                else:
                    self.refusal = EvenReason.RANKS_DIFFER

    def _better(self, reports: Sequence[Report]) -> tuple[int, ...] | None:
        """Sizes that are worth a change, if all ranks have been timed under the current ones."""
        now = self.current
        if any(report.plan != now.number or report.unit <= 0 for report in reports):
            return None
        units = [report.unit for report in reports]
        sizes = divide(units, self._even)
        saved = gain(units, now.sizes, sizes)
        if saved < GAIN_LEAST:
            self._seen_gain = 0
            return None
        self._seen_gain += 1
        if saved < GAIN_SURE and self._seen_gain < EVEN_GAIN_PATIENCE:
            return None
        self._seen_gain = 0
        return sizes

    def _propose(self, sizes: tuple[int, ...], own: Report) -> None:
        lead = LEAD_BATCHES + math.ceil(LEAD_POLLS * self._poll_s / max(own.batch_s, 1e-3))
        epoch, batch = own.following
        self._number += 1
        plan = SizePlan(self._number, Position(epoch, batch + lead * self._growth), sizes)
        self._pending, self._committed = plan, self._world == 1
        self._publish("proposed", plan)

    def _publish(self, state: str, plan: SizePlan) -> None:
        body = [self._session, state, self.refusal, *plan]
        self._store.set("plan", json.dumps(body))


def _report(parts: Sequence[Any]) -> Report:
    step, at, plan, following, data, unit, batch_s, refusal = parts
    return Report(
        step=int(step),
        at=Position(*at),
        plan=int(plan),
        following=Position(*following),
        data=str(data),
        unit=float(unit),
        batch_s=float(batch_s),
        refusal=EvenReason(refusal),
    )
