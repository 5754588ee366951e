# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles whose estimates are recomputed in this cycle, and their writes.

Estimates depend on the types on which each class was measured. They are recomputed only when these
change, a few classes per cycle and each at most every five minutes, so that a large cluster decides
as fast as before. A profile that this cycle already writes must never be written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import permutations
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.codecs.profile import profile_as_stored
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import ProfileRecord, Source
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.learning.estimates import Evidence, estimated, gather
from ullage.scheduling.learning.loop import KIND, ProfileUpdates
from ullage.scheduling.learning.operations import OpTimeFits
from ullage.scheduling.learning.throughput import Throughput, family_of, known
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.plan import SetProfile
from ullage.scheduling.times import SPEEDS_WRITE_S

MOST_A_CYCLE: Final = 2
_NEXT_SECOND_S: Final = 1.0
BASIS_CHARACTERS: Final = 12
_NOBODY: Final[frozenset[str]] = frozenset()

Key = tuple[str, str]
"""Namespace and name of a profile."""


def with_estimates(
    snapshot: Snapshot,
    now: float,
    epoch: int,
    updates: ProfileUpdates,
    fits: OpTimeFits | None = None,
) -> ProfileUpdates:
    """The updates, and the profiles with due estimates.

    Args:
        snapshot: The snapshot.
        now: The current time, seconds since the epoch.
        epoch: Epoch of this leader.
        updates: Writes of profiles in this cycle so far.
        fits: Fits op times; it may cache results between cycles.
    """
    if len({device.model for node in snapshot.gpu_nodes.values() for device in node.devices}) < 2:
        return updates
    taken = {(action.target.namespace, action.target.name) for action in updates.actions}
    actions: list[SetProfile] = []
    wake_at = updates.wake_at
    for profile, evidence, table in _read(snapshot, fits):
        if profile.status.throughput_basis == table.basis or not profile.uid:
            continue
        if not _possible(profile, evidence, table):
            continue
        at = profile.status.throughput_at
        if at and now < at + SPEEDS_WRITE_S:
            wake_at = earliest(wake_at, at + SPEEDS_WRITE_S)
        elif len(actions) == MOST_A_CYCLE or (profile.namespace, profile.name) in taken:
            wake_at = earliest(wake_at, now + _NEXT_SECOND_S)
        else:
            actions.append(_write(profile, evidence, (now, epoch, table.basis)))
    return replace(updates, actions=(*updates.actions, *actions), wake_at=wake_at)


def _read(
    snapshot: Snapshot, fits: OpTimeFits | None
) -> Iterator[tuple[ProfileRecord, Evidence, _Cells]]:
    """Every profile, with its evidence; the longest wait for estimates first."""
    gathered = gather(snapshot, fits)
    tables = {scope: _Cells.of(evidence) for scope, evidence in gathered.items()}
    knowledge = snapshot.policy.knowledge
    for key in sorted(
        snapshot.profiles, key=lambda at: (snapshot.profiles[at].status.throughput_at, at)
    ):
        scope = knowledge.scope(key[0])
        yield snapshot.profiles[key], gathered[scope], tables[scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """Types on which each class has a speed, without values: these change with every window.

    ``known`` and ``measured`` are by profile; ``classes`` has the classes of a family with speeds
    on a pair of types; ``basis`` is the digest of all inputs of estimates.
    """

    known: Mapping[Key, frozenset[str]]
    measured: Mapping[Key, frozenset[str]]
    classes: Mapping[tuple[str, tuple[str, str]], frozenset[str]]
    basis: str

    @classmethod
    def of(cls, evidence: Evidence) -> _Cells:
        known_: dict[Key, frozenset[str]] = {}
        measured: dict[Key, frozenset[str]] = {}
        classes: dict[tuple[str, tuple[str, str]], set[str]] = {}
        digest = sha256("\n".join(sorted(evidence.accelerators)).encode())
        for profile in evidence.profiles:
            key = (profile.namespace, profile.name)
            rows = profile.status.solo
            measured[key] = frozenset(row.device for row in rows if row.steps_per_second > 0)
            declared = (row.device for row in profile.solo if row.steps_per_second > 0)
            known_[key] = types = measured[key].union(declared)
            family = family_of(profile)
            for pair in permutations(types, 2):
                classes.setdefault((family, pair), set()).add(profile.workload_class)
            table = profile.op_table.accelerator if profile.op_table is not None else "-"
            name = f"{profile.namespace}/{profile.name} {profile.workload_class}"
            name += f" of {family}" if family else ""
            line = f"{name} {profile.generation} {table}"
            digest.update(f"\n{line} {sorted(types)} {sorted(measured[key])}".encode())
        for name in sorted(evidence.devices):
            digest.update(f"\n{name} {evidence.devices[name].generation}".encode())
        return cls(
            known=known_,
            measured=measured,
            classes={kin: frozenset(names) for kin, names in classes.items()},
            basis=digest.hexdigest()[:BASIS_CHARACTERS],
        )


def _possible(profile: ProfileRecord, evidence: Evidence, table: _Cells) -> bool:
    """True when a missing type could be estimated: usually there is no evidence."""
    if any(entry.source is Source.ESTIMATED for entry in profile.status.throughput):
        return True  # earlier estimates may be invalid
    key, own_class = (profile.namespace, profile.name), {profile.workload_class}
    family = family_of(profile)
    for accelerator in evidence.accelerators - table.measured[key]:
        others = table.known[key] - {accelerator}
        if profile.op_table is not None and evidence.op_tables(accelerator) is not None:
            return True
        if any(_rated(evidence, name) for name in others) and _rated(evidence, accelerator):
            return True
        pairs = ((family, (name, accelerator)) for name in others)
        if any(table.classes.get(pair, _NOBODY) - own_class for pair in pairs):
            return True
    return False


def _rated(evidence: Evidence, accelerator: str) -> bool:
    record = evidence.devices.get(accelerator)
    return record is not None and bool(record.peak_flops and record.memory_bytes_per_s)


def _write(
    profile: ProfileRecord, evidence: Evidence, moment: tuple[float, int, str]
) -> SetProfile:
    now, epoch, basis = moment
    estimates = estimated(profile, evidence)
    subject = f"class {profile.workload_class}"
    status = replace(
        profile.status,
        observed_generation=profile.generation,
        source=profile.status.source or (Source.ESTIMATED.value if estimates else ""),
        throughput=_table(known(profile).values(), estimates),
        throughput_basis=basis,
        throughput_at=whole_second(now),
    )
    return SetProfile(
        target=ObjectRef(
            kind=KIND, namespace=profile.namespace, name=profile.name, uid=profile.uid
        ),
        status=profile_as_stored(status),
        epoch=epoch,
        reason=Reason.ESTIMATED if estimates else Reason.NO_ESTIMATE,
        text=(
            f"speeds of {subject} are estimated on {len(estimates)} types of device"
            if estimates
            else f"no speed of {subject} can be estimated"
        ),
    )


def _table(
    known_speeds: Iterable[Throughput], estimates: Iterable[Throughput]
) -> tuple[Throughput, ...]:
    """One row per type: measured, else the more certain of estimated and declared."""
    table = {entry.accelerator: entry for entry in known_speeds}
    for entry in estimates:
        current = table.get(entry.accelerator)
        if current is None or (
            current.source is not Source.MEASURED and current.confidence < entry.confidence
        ):
            table[entry.accelerator] = entry
    return tuple(table[name] for name in sorted(table))
