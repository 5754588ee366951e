# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sets aside objects whose decisions fail, from one decision to the next.

Usually the failure itself identifies the faulty object. Otherwise (a dead process, a hang in native
code), the object is searched for by bisection, one decision at a time; those decisions are valid
for all included objects. Work is searched first, and alone where a decision is late: neither a node
nor a policy is set aside because work is slow. Objects set aside are retried after an edit, or
after a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from ullage.app.times import ASIDE_FIRST_S, ASIDE_MOST_S, FAULT_SEARCH_REST_S
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.cycle.set_aside import key_text, subjects
from ullage.scheduling.model.faults import PODS, WORKLOADS, Fault, Subject

log = structlog.get_logger("ullage.aside")

CHANCES: Final = 2
"""Consecutive decisions without an answer that start a search."""
MANY: Final = 2
"""Number of objects failing alike in one decision that may have a common cause."""
_WORK: Final = (WORKLOADS, PODS)


@dataclass(slots=True)
class _AsideEntry:
    fault: Fault
    generation: int
    until: float
    for_s: float


class Search:
    """Finds the first object, in an order, with which decisions fail, by bisection.

    Args:
        order: All objects: shared ones, then work; of each those that changed lately last.
        work: Index of the first work. The first probe leaves out all work; if work is at fault,
            every probe is a valid decision for the rest.
        boundaries: Preferred boundaries of halves: the first change since a successful decision.
        confirm: True = the object found must also fail alone: an expired decision is no proof
            against the last object added.
    """

    def __init__(
        self,
        order: Sequence[Subject],
        work: int = 0,
        boundaries: Collection[int] = (),
        *,
        confirm: bool,
    ) -> None:
        self._order = order
        self._work = work
        self._boundaries = boundaries
        self._confirm = confirm
        self._low, self._high = 0, len(order)
        self._probe = work if work < len(order) else 0
        self._first = True
        self._alone = False
        self.over = not order
        self.found: Subject | None = None

    @property
    def paused(self) -> Sequence[Subject]:
        """Objects that the next decision leaves out."""
        if self._alone:
            least = self._work if self._high > self._work else 0
            return (*self._order[least : self._high - 1], *self._order[self._high :])
        return self._order[self._probe :]

    def ended(self, *, good: bool) -> None:
        """Record the result of the decision without the paused objects."""
        first, self._first = self._first, False
        if self._alone:
            self.over, self.found = True, None if good else self._order[self._high - 1]
            return
        if good:
            self._low = self._probe
        elif self._probe == 0:
            self.over = True
            return
        else:
            self._high = self._probe
            if first:  # it is not work; check that any object is at fault
                self._probe = 0
                return
        if self._high - self._low > 1:
            inside = [place for place in self._boundaries if self._low < place < self._high]
            self._probe = inside[0] if inside else (self._low + self._high) // 2
        elif self._confirm:
            self._alone = True
        else:
            self.over, self.found = True, self._order[self._high - 1]


class SetAside:
    """Objects that are set aside, and the search for others; times are seconds since the epoch."""

    def __init__(self) -> None:
        """Nothing is set aside yet."""
        self._entries: dict[Subject, _AsideEntry] = {}
        self._good: Snapshot | None = None
        self._silent = 0
        """Decisions in a row without an answer."""
        self._search: Search | None = None
        self._suspects: frozenset[Subject] = frozenset()
        """Objects that are set aside, possibly without being at fault."""
        self._cause = ""
        self._hurries = False
        """The search is for an exception, not for a hang."""
        self._found = False
        """The last decision completed a search."""
        self._rests_until = 0.0
        self.probes = False
        """The next decision leaves out machines or settings: none of its actions is executed."""
        self._news: list[Fault] = []
        self.faults: Counter[str] = Counter()
        """Objects that were set aside so far, by table of the snapshot."""

    @property
    def searching(self) -> bool:
        """True while the next decision is part of a search."""
        return self._search is not None

    @property
    def hurries(self) -> bool:
        """True when the same snapshot is worth another decision at once: failures are quick."""
        return self._hurries and (self.searching or self._found)

    def in_force(self) -> Mapping[str, int]:
        """Objects that are set aside now, by table of the snapshot."""
        return Counter(table for table, _ in self._entries)

    def of(self, snapshot: Snapshot, now: float) -> tuple[Fault, ...]:
        """Faults whose objects the next decision leaves out."""
        for subject, entry in list(self._entries.items()):
            if _generation(snapshot, subject) != entry.generation:
                del self._entries[subject]
        faults = {
            subject: entry.fault
            for subject, entry in self._entries.items()
            if entry.until > now and subject not in self._suspects
        }
        paused = self._search.paused if self._search is not None else ()
        self.probes = any(table not in _WORK for table, _ in paused)
        probed = (
            Fault(table=table, key=key) for table, key in paused if (table, key) not in faults
        )
        return (*faults.values(), *probed)

    def without_probing(self, snapshot: Snapshot, now: float) -> tuple[Fault, ...] | None:
        """Faults whose objects are left out of an executed decision during a search.

        All that is set aside, including objects possibly without fault; ``None`` = the cause is
        unknown, so there is no such decision.
        """
        if self.searching and not self._suspects:
            return None
        self.of(snapshot, now)
        return tuple(entry.fault for entry in self._entries.values() if entry.until > now)

    def news(self) -> Sequence[Fault]:
        """Faults that were set aside since the last call."""
        news, self._news = self._news, []
        return news

    def decided(self, snapshot: Snapshot, faults: Sequence[Fault], now: float) -> None:
        """Record a decision that was made without these objects."""
        self._silent, self._found = 0, False
        failing = {fault.subject for fault in faults}
        fresh = [fault for fault in faults if fault.subject not in self._entries]
        for fault in faults:
            self._hold(snapshot, fault, now)
        if self._search is not None:
            still = len(self._suspects & failing)
            self._searched(snapshot, now, good=2 * still < len(self._suspects) or not still)
            return
        self._good = snapshot
        for subject in [subject for subject in self._entries if subject not in failing]:
            log.info("decided again", table=subject[0], key=subject[1])
            del self._entries[subject]
        self._suspect(snapshot, fresh)

    def _suspect(self, snapshot: Snapshot, fresh: Sequence[Fault]) -> None:
        """Begin a search when many fail alike: a shared object may be at fault."""
        fresh = [
            fault for fault in fresh if not fault.late
        ]  # slow work says nothing about machines
        kinds = Counter(_kind(fault) for fault in fresh)
        alike = [fault for fault in fresh if kinds[_kind(fault)] == max(kinds.values())]
        suspects = frozenset(fault.subject for fault in alike)
        if len(suspects) < MANY:
            return
        order = [
            subject
            for subject in subjects(snapshot)
            if subject[0] not in _WORK and subject not in suspects and subject not in self._entries
        ]
        if not order:
            return
        self._search, self._suspects = Search(order, confirm=False), suspects
        self._cause, self._hurries = alike[0].text, True

    def failed(
        self, snapshot: Snapshot, now: float, cause: str, *, answered: bool, late: bool = False
    ) -> bool:
        """Record a failed decision; returns True when the next one may give more information.

        Args:
            snapshot: The input of the decision.
            now: The current time.
            cause: The failure as text.
            answered: It raised; else it was late, or its process died.
            late: It was late: only work is searched.
        """
        self._found = False
        if self._search is not None:
            self._searched(snapshot, now, good=False)
            return self.searching or self._found
        tried = [entry.fault for entry in self._entries.values() if entry.until <= now]
        if tried:  # most likely one of those just retried
            for fault in tried:
                self._hold(snapshot, fault, now)
            return True
        self._silent = 0 if answered else self._silent + 1
        if now < self._rests_until or (not answered and self._silent < CHANCES):
            return False
        self._search = self._begun(snapshot, late=late, confirm=not answered)
        log.warning("search for the object at fault", cause=cause)
        self._cause, self._hurries = cause, answered
        return not self._search.over

    def blame(self, snapshot: Snapshot, uid: str, text: str, now: float) -> None:
        """Set a workload aside whose decision cannot be executed."""
        if uid in snapshot.workloads:
            self._hold(snapshot, Fault(table=WORKLOADS, key=uid, text=text), now)

    def _searched(self, snapshot: Snapshot, now: float, *, good: bool) -> None:
        """Continue the search."""
        search = self._search
        if search is None:
            return
        search.ended(good=good)
        if not search.over:
            return
        suspects, self._suspects = self._suspects, frozenset()
        self._search, self._silent = None, 0
        if search.found is None:
            if not suspects:
                log.error("no object alone is at fault", cause=self._cause)
                self._rests_until = now + FAULT_SEARCH_REST_S
            return
        for suspect in suspects:
            self._entries.pop(suspect, None)
        self._news = [news for news in self._news if news.subject not in suspects]
        fault = Fault(table=search.found[0], key=search.found[1], text=self._cause)
        self._hold(snapshot, fault, now)
        self._found = True

    def _hold(self, snapshot: Snapshot, fault: Fault, now: float) -> None:
        """Set an object aside, for longer if it was just retried."""
        entry = self._entries.get(fault.subject)
        if entry is not None and entry.until > now:
            return
        for_s = ASIDE_FIRST_S if entry is None else min(2 * entry.for_s, ASIDE_MOST_S)
        self._entries[fault.subject] = _AsideEntry(
            fault=replace(fault, trace=""),
            generation=_generation(snapshot, fault.subject),
            until=now + for_s,
            for_s=for_s,
        )
        if entry is not None:
            return
        self._news.append(fault)
        self.faults[fault.table] += 1
        log.error(
            "set aside", table=fault.table, key=fault.key, error=fault.text, trace=fault.trace
        )

    def _begun(self, snapshot: Snapshot, *, late: bool, confirm: bool) -> Search:
        """A search among all objects, or among work where a decision was only late."""
        changed = _changed(self._good, snapshot) if self._good is not None else set()
        others, work = list[Subject](), list[Subject]()
        for subject in subjects(snapshot):
            if subject in self._entries:
                continue
            if subject[0] in _WORK:
                work.append(subject)
            elif not late:
                others.append(subject)
        order, boundaries = list[Subject](), list[int]()
        for part in (others, work):
            part.sort(key=lambda subject: subject in changed)
            unchanged = (
                sum(subject not in changed for subject in part) if self._good is not None else 0
            )
            boundaries.append(len(order) + unchanged)
            order += part
        return Search(order, len(others), boundaries, confirm=confirm)


def _kind(fault: Fault) -> str:
    """The type of the exception."""
    return fault.text.partition(":")[0]


def _records(snapshot: Snapshot, table: str) -> Mapping[str, object]:
    records: object = getattr(snapshot, table)
    if isinstance(records, Mapping):
        return {key_text(key): record for key, record in records.items()}
    return {snapshot.policy.name: records}


def _generation(snapshot: Snapshot, subject: Subject) -> int:
    """Generation of an object; -1 = deleted."""
    table, key = subject
    if table == WORKLOADS:
        job = snapshot.workloads.get(key)
        return job.generation if job is not None else -1
    record = _records(snapshot, table).get(key)
    return -1 if record is None else int(getattr(record, "generation", 0))


def _changed(before: Snapshot, now: Snapshot) -> set[Subject]:
    """Objects that are new or changed; a workload changes with its pods."""
    changed: set[Subject] = set()
    for table in {table for table, _ in subjects(now)}:
        old = _records(before, table)
        changed |= {
            (table, key)
            for key, record in _records(now, table).items()
            if old.get(key) is not record
        }
    for uid, pod in now.pods.items():
        if before.pods.get(uid) is not pod and pod.owner.uid in now.workloads:
            changed.add((WORKLOADS, pod.owner.uid))
    return changed
