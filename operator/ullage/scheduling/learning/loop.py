# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learning loop: from observations of nodes to the WorkloadProfiles of the classes.

Nodes keep their newest observations in their status; the operator moves them to one profile per
namespace and class, which is created when it is missing. Pure and idempotent: the rows' identities
are the state, so deciding twice, or after a restart, writes nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Final

from ullage.api.numbers import six_digits
from ullage.api.observations import Observation
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.query import Account
from ullage.scheduling.inventory.device_faults import charges
from ullage.scheduling.learning.charged import charged, isolation_news
from ullage.scheduling.learning.merge import learned, news
from ullage.scheduling.learning.sift import Dropped, fault
from ullage.scheduling.model.plan import CreateProfile, Emit, SetProfile
from ullage.scheduling.model.view import Class, Isolation
from ullage.scheduling.times import ACKNOWLEDGE_S, OBSERVATION_GIVEN_UP_S, PROFILE_WRITE_S

ENOUGH_ROWS: Final = 8
"""Number of observations that are acknowledged at once."""
NODES_MOST: Final = 20
"""Acknowledgements per cycle, so that they never delay placement."""
KIND: Final = "WorkloadProfile"

_NOT_ISOLATED: Final[Mapping[Class, Isolation]] = MappingProxyType({})
_NO_TRIALS: Final[Mapping[Class, Account]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """Newest settled observation by node, and the time of the next acknowledgement (0 = none)."""

    up_to: dict[str, str] = field(default_factory=dict)
    wake_at: float = 0.0


def taken_in(nodes: Iterable[GPUNodeRecord], unsettled: Set[str], now: float) -> TakenIn:
    """The acknowledgements that are due.

    Args:
        nodes: All GPUNodes.
        unsettled: ids of observations that a profile will still record.
        now: Seconds since the epoch.
    """
    due: list[tuple[float, str, str]] = []
    later: list[float] = []
    for node in nodes:
        settled = list(
            takewhile(
                lambda observation: (
                    observation.id not in unsettled
                    or now - observation.at_s > OBSERVATION_GIVEN_UP_S
                ),
                node.observations,
            )
        )
        if not settled or settled[-1].id == node.observations_read:
            continue
        oldest_s = min(observation.at_s for observation in settled)
        if len(settled) >= ENOUGH_ROWS or now - oldest_s >= ACKNOWLEDGE_S:
            due.append((oldest_s, node.name, settled[-1].id))
        else:
            later.append(oldest_s + ACKNOWLEDGE_S)
    due.sort()
    return TakenIn(
        up_to={name: newest for _, name, newest in due[:NODES_MOST]},
        wake_at=now + 1.0 if len(due) > NODES_MOST else min(later, default=0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileUpdates:
    """Actions and Events, dropped observations by reason, and the time of the next check.

    ``wake_at`` 0 = with the next change of the snapshot.
    """

    actions: tuple[CreateProfile | SetProfile, ...] = ()
    events: tuple[Emit, ...] = ()
    dropped: Mapping[Dropped, int]
    observations_read: Mapping[str, str] = field(default_factory=dict)
    """Newest observation to acknowledge, by node."""
    wake_at: float = 0.0


def profiles_to_write(
    snapshot: Snapshot,
    now: float,
    epoch: int,
    trials: Mapping[Class, Account] = _NO_TRIALS,
    isolated: Mapping[Class, Isolation] = _NOT_ISOLATED,
) -> ProfileUpdates:
    """The profiles to create or write, so that no observation is lost.

    Args:
        snapshot: The snapshot, with assumed profiles.
        now: The current time, seconds since the epoch.
        epoch: Epoch of this leader.
        trials: Current costs of classes' trials, to be stored in their profiles.
        isolated: Classes that share only with themselves.
    """
    dropped: Counter[Dropped] = Counter()
    groups = _groups(snapshot, now, dropped)
    profiles = _by_class(snapshot.profiles.values())
    faults, lanes = charges(snapshot, now), lane_peaks(snapshot)
    named = groups.keys() | trials.keys() | faults.keys() | isolated.keys() | lanes.keys()
    # a profile must not report its class as isolated for longer than it is
    named |= {
        at for at, profile in profiles.items() if profile.status.condition(ConditionType.ISOLATED)
    }
    workloads = snapshot.workloads.values() if named else ()
    inhabited = {workload.ref.namespace for workload in workloads if not workload.deleting}
    inflicted: Mapping[Class, Mapping[str, list[float]]] | None = None
    actions: list[CreateProfile | SetProfile] = []
    events: list[Emit] = []
    unsettled: set[str] = set()
    wake_at = 0.0
    newly: dict[Class, Isolation] = {}
    for at in sorted(named):
        observations = groups.get(at, [])
        profile = profiles.get(at)
        if profile is None:
            name = profile_name(at[1])
            if (at[0], name) in snapshot.profiles:
                dropped[Dropped.NAME_TAKEN] += len(observations)
            elif at[0] not in inhabited:
                dropped[Dropped.NOBODY_LEFT] += len(observations)
            elif (KIND, at[0], name) not in snapshot.refused_writes:
                actions.append(_create(at, name, epoch))
                unsettled |= {observation.id for observation in observations}
            continue
        isolation = isolated.get(at)
        booked = _booked(profile.status, trials.get(at))
        booked = charged(profile, booked, faults.get(at, ()), isolation, now)
        booked = with_lane_memory(booked, lanes.get(at))
        fresh = news(booked, observations)
        if (KIND, at[0], profile.name) not in snapshot.refused_writes:
            unsettled |= {observation.id for observation in fresh}
        if not profile.uid or not (fresh or booked != profile.status):
            continue
        due = profile.status.updated + PROFILE_WRITE_S
        is_charged = booked.faults > profile.status.faults
        if now < due and not is_charged:
            wake_at = min(wake_at or due, due)
            continue
        if inflicted is None:
            inflicted = _inflicted(snapshot.profiles.values())
        status, odd = learned(replace(profile, status=booked), fresh, inflicted.get(at, {}), now)
        dropped[Dropped.FINGERPRINT] += odd
        written = _write(profile, status, len(fresh), epoch)
        actions.append(written)
        events += profile_news(profile, written)
        if is_charged and isolation is not None:
            newly[at] = isolation
    if newly:
        events += isolation_news(newly, snapshot.workloads.values(), epoch)
    ends = min((isolation.until for isolation in isolated.values()), default=0.0)
    read = taken_in(snapshot.gpu_nodes.values(), unsettled, now)
    return ProfileUpdates(
        actions=tuple(actions),
        events=tuple(events),
        dropped=+dropped,
        observations_read=read.up_to,
        wake_at=min((at for at in (wake_at, read.wake_at, ends) if at), default=0.0),
    )


def _booked(status: ProfileStatus, account: Account | None) -> ProfileStatus:
    """The status with the current cost of trials."""
    if account is None:
        return status
    return replace(
        status,
        trial_s=six_digits(account.spent_s),
        trial_rows=account.rows,
    )


def _groups(
    snapshot: Snapshot, now: float, dropped: Counter[Dropped]
) -> dict[Class, list[Observation]]:
    groups: dict[Class, list[Observation]] = {}
    for name in sorted(snapshot.gpu_nodes):
        node = snapshot.gpu_nodes[name]
        dropped[Dropped.MALFORMED] += node.unreadable_observations
        for observation in node.observations:
            reason = fault(observation, node, now)
            if reason is None:
                groups.setdefault((observation.namespace, observation.workload_class), []).append(
                    observation
                )
            else:
                dropped[reason] += 1
    return groups


def _by_class(profiles: Iterable[ProfileRecord]) -> dict[Class, ProfileRecord]:
    """The profile that learns for a class: the operator's own before others, then by name."""
    by_class: dict[Class, ProfileRecord] = {}
    for profile in sorted(
        profiles, key=lambda p: (p.name != profile_name(p.workload_class), p.name)
    ):
        by_class.setdefault((profile.namespace, profile.workload_class), profile)
    return by_class


def _inflicted(profiles: Iterable[ProfileRecord]) -> dict[Class, dict[str, list[float]]]:
    """Slowdowns of others beside one class alone, by that class and accelerator."""
    slowdowns: dict[Class, dict[str, list[float]]] = {}
    for profile in profiles:
        for row in profile.status.step_time:
            if len(row.partners) == 1 and row.slowdown:
                # another namespace precedes the class
                first, slash, name = row.partners[0].workload_class.partition("/")
                at = (first, name) if slash else (profile.namespace, first)
                slowdowns.setdefault(at, {}).setdefault(row.accelerator, []).append(row.slowdown)
    return slowdowns


def _create(at: Class, name: str, epoch: int) -> CreateProfile:
    namespace, workload_class = at
    return CreateProfile(
        target=ObjectRef(kind=KIND, namespace=namespace, name=name, uid=""),
        workload_class=workload_class,
        epoch=epoch,
        reason=Reason.MEASURED,
        text=f"class {workload_class} was observed for the first time",
    )


def _write(profile: ProfileRecord, status: ProfileStatus, rows: int, epoch: int) -> SetProfile:
    return SetProfile(
        target=ObjectRef(
            kind=KIND, namespace=profile.namespace, name=profile.name, uid=profile.uid
        ),
        status=status,
        epoch=epoch,
        reason=Reason.MEASURED,
        text=(
            f"{rows} rows of class {profile.workload_class} come in, {len(status.step_time)} in all"
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """Maximum memory, in MiB, between two steps, and of a step above it."""

    persistent_mib: int
    ephemeral_mib: int


def lane_peaks(snapshot: Snapshot) -> dict[Class, LaneMemory]:
    """Maximum memory that running programs used of their lanes, by class.

    A program reports it at the end of a step; classes without reports are left out. A report is
    capped by its device, and counts in the profile of its own namespace.
    """
    peaks: dict[Class, LaneMemory] = {}
    for node in snapshot.gpu_nodes.values():
        for part in node.observed:
            if not part.lane or not (part.persistent_peak_mib or part.ephemeral_peak_mib):
                continue
            pod = snapshot.pods.get(part.key.pod_uid)
            owner = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if owner is None or not owner.workload_class:
                continue
            at = (owner.ref.namespace, owner.workload_class)
            before = peaks.get(at, LaneMemory(persistent_mib=0, ephemeral_mib=0))
            peaks[at] = LaneMemory(
                persistent_mib=max(before.persistent_mib, part.persistent_peak_mib),
                ephemeral_mib=max(before.ephemeral_mib, part.ephemeral_peak_mib),
            )
    return peaks


def with_lane_memory(status: ProfileStatus, memory: LaneMemory | None) -> ProfileStatus:
    """The status with the larger of its own and the reported memory; ``None`` = no report."""
    if memory is None:
        return status
    return replace(
        status,
        lane_persistent_mib=max(status.lane_persistent_mib, memory.persistent_mib),
        lane_ephemeral_mib=max(status.lane_ephemeral_mib, memory.ephemeral_mib),
    )


def profile_news(before: ProfileRecord, written: SetProfile) -> list[Emit]:
    """Events of this write: values are valid again or no longer, or differ from declared ones.

    Another window alone has no Event.
    """
    news: list[Emit] = []
    fresh_before = before.status.condition(ConditionType.FRESH)
    fresh = written.status.condition(ConditionType.FRESH)
    turned = (
        fresh_before is not None
        and fresh is not None
        and (fresh_before.status, fresh_before.reason) != (fresh.status, fresh.reason)
    )
    event = partial(Emit, target=written.target, epoch=written.epoch)
    if fresh is not None and turned:
        rows = f"{len(written.status.step_time)} rows measured"
        text = fresh.message or f"what was measured counts from now on, {rows}"
        warning = fresh.status != "True"
        news.append(event(warning=warning, reason=Reason.PROFILE_UPDATED, text=text))
    conflict = written.status.condition(ConditionType.CONFLICTING)
    if conflict is not None and before.status.condition(ConditionType.CONFLICTING) is None:
        news.append(event(warning=True, reason=Reason.PROFILE_CONFLICT, text=conflict.message))
    return news
