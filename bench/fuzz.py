# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild objects of every kind that the operator reads, millions of them: nothing escapes.

Each batch begins with an empty picture and a third namespace that behaves. Wild objects come as
bytes, through the decoder, in lists, events and deletions; then the picture is frozen, decided on,
and the request of every action is built. An escape is an exception that harms more than its object,
or a third namespace whose plan differs from the one without wild objects. A batch follows from
``--seed`` and its number alone, so that one can be run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from bench.report import FOLDER
from bench.wild import GOOD_SPACE as SPACE
from bench.wild import Wild
from bench.wild_world import NOW, good
from ullage.app.effects import effect_of
from ullage.app.transfer import Packer, Unpacker
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.streams import Stream
from ullage.engines.allocation.model import Allocation, Problem
from ullage.engines.allocation.policies import Objective
from ullage.kube.coordinators import Coordinators
from ullage.kube.decoding import decoded
from ullage.kube.errors import Refused
from ullage.kube.reflector import Packed
from ullage.kube.requests import ApiRequest, RequestBuilder, key_of, verb_of
from ullage.ports import ApiError
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, Emit, Plan, TaintNode

BATCH: Final = 2_000
"""Wild objects before a decision."""
PAGE: Final = 50
SETTINGS: Final = DecideSettings(epoch=2)


@dataclass(slots=True)
class Tally:
    """What came of some batches."""

    objects: int = 0
    unread: int = 0
    decisions: int = 0
    actions: int = 0
    refused: int = 0
    escapes: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what came of others, too."""
        self.objects += other.objects
        self.unread += other.unread
        self.decisions += other.decisions
        self.actions += other.actions
        self.refused += other.refused
        self.escapes += other.escapes


Judge = Callable[[ApiRequest], Sequence[str]]
"""Says what is wrong with a request that was built."""


def run_batch(seed: int, number: int, objects: int = BATCH, *, judge: Judge | None = None) -> Tally:
    """One batch; the same seed and number do the same."""
    tally = Tally()
    state = _picture()
    place = f"seed {seed} batch {number}"
    for at, (stream, items, verb) in enumerate(_calls(Wild(f"{seed}/{number}"), objects)):
        tally.objects += len(items)
        try:
            _feed(state, stream, items, verb)
        except Exception:  # whatever it is: an escape, which is what is counted here
            tally.escapes.append(f"{place} call {at} {stream.name}:\n{traceback.format_exc()}")
    tally.unread = sum(state.projection_errors.values())
    _decide(state, tally, place, judge)
    return tally


def _picture() -> ClusterState:
    state = ClusterState(effect_of)
    for stream, items in good().items():
        state.replace(stream, items, NOW)
    return state


def _calls(wild: Wild, objects: int) -> Iterator[tuple[Stream, list[bytes], str]]:
    """Events, deletions and now and then a list."""
    left = objects
    while left > 0:
        stream, drawn = wild.stream(), wild.random.random()
        count = min(PAGE, left) if drawn < 0.01 else 1
        left -= count
        verb = "LIST" if drawn < 0.01 else "DELETED" if drawn < 0.06 else "MODIFIED"
        yield stream, [wild.item(stream) for _ in range(count)], verb


def _feed(state: ClusterState, stream: Stream, items: list[bytes], verb: str) -> None:
    """What a reflector does with a page, or with a line."""
    if verb == "LIST":
        page = decoded(b'{"metadata":{},"items":[' + b",".join(items) + b"]}")
        packed = Packed()
        packed.add(good().get(stream, []))
        found = page["items"]
        assert isinstance(found, list)
        packed.add(found)
        state.replace(stream, packed, NOW)
        return
    event = decoded(b'{"type":"' + verb.encode() + b'","object":' + items[0] + b"}")
    item = event["object"]
    assert isinstance(item, dict)
    if verb == "DELETED":
        state.remove(stream, item, NOW)
    else:
        state.upsert(stream, item, NOW)


def _decide(state: ClusterState, tally: Tally, place: str, judge: Judge | None = None) -> None:
    """Decide on what is there, and build what would be written."""
    try:
        snapshot = state.freeze(NOW)
        snapshot, now, settings = Unpacker().unpack(Packer().pack(snapshot, NOW, SETTINGS))
        plan = decide(snapshot, now, settings, _allocate)
        actions = diff(plan, snapshot)
        tally.decisions += 1
        state.assume(actions, NOW)
        state.freeze(NOW)
    except Exception:  # an escape, as above
        tally.escapes.append(f"{place} decision:\n{traceback.format_exc()}")
        return
    requests = RequestBuilder(
        state,
        pre_stop_sleep_s=5,
        order_image="order",
        coordinators=Coordinators(image="lead", namespace="ops"),
    )
    for action in actions:
        try:
            faults = _build(requests, action, tally, judge)
            tally.escapes += [f"{place} {action!r:.300}: {fault}" for fault in faults]
        except Exception:  # an escape, as above
            tally.escapes.append(f"{place} {action!r:.300}:\n{traceback.format_exc()}")
    found, calm = _third(plan, snapshot, actions), _quiet()
    for part, planned in calm.items():
        if found[part] != planned:
            tally.escapes.append(
                f"{place}: {part} of the third namespace are {found[part]}, not {planned}"
            )


def _build(
    requests: RequestBuilder, action: Action, tally: Tally, judge: Judge | None
) -> Sequence[str]:
    """Build a request; what is wrong with it."""
    tally.actions += 1
    verb_of(action)
    key_of(action)
    if isinstance(action, (Emit, TaintNode)):
        return ()
    try:
        built = requests.request(action, "1")
        requests.before(action)
    except (ApiError, Refused):
        tally.refused += 1
        return ()
    json.dumps([built.body, built.patch], allow_nan=False)
    return judge(built) if judge is not None else ()


def _allocate(objective: Objective, problem: Problem) -> Allocation:
    from ullage.engines.allocation.policies import allocate

    return allocate(objective, problem)


def _third(plan: Plan, snapshot: Snapshot, actions: tuple[Action, ...]) -> dict[str, Any]:
    """What is decided for the third namespace."""
    mine = {
        uid: plan.statuses.get(uid, one.status)
        for uid, one in snapshot.workloads.items()
        if one.ref.namespace == SPACE
    }
    return {
        "slices": [
            one for held in plan.slices.values() for one in held if one.pod_namespace == SPACE
        ],
        "statuses": {
            uid: (
                status.phase,
                status.placement,
                [(one.type, one.status, one.reason) for one in status.conditions],
            )
            for uid, status in sorted(mine.items())
        },
        "actions": sorted(
            str(verb_of(action)) + str(key_of(action))
            for action in actions
            if SPACE in key_of(action)
        ),
    }


_CALM: dict[str, Any] = {}


def _quiet() -> dict[str, Any]:
    """The plan of the third namespace without wild objects."""
    if not _CALM:
        state = _picture()
        snapshot = state.freeze(NOW)
        plan = decide(snapshot, NOW, SETTINGS, _allocate)
        _CALM.update(_third(plan, snapshot, diff(plan, snapshot)))
    return _CALM


def run(seed: int, objects: int, *, workers: int = 1) -> Iterator[Tally]:
    """What comes of each batch, in no order."""
    numbers = range(-(-objects // BATCH))
    if workers <= 1:
        yield from (run_batch(seed, number) for number in numbers)
        return
    with ProcessPoolExecutor(workers, max_tasks_per_child=200) as pool:
        left = iter(numbers)
        while wave := list(islice(left, workers * 8)):
            yield from pool.map(run_batch, [seed] * len(wave), wave)


def main() -> int:
    """Run, tell how it goes, write the figures; 1 if anything escaped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=FOLDER / "fuzz.json")
    parser.add_argument("--batch", type=int, help="run one batch again and show what escapes")
    asked = parser.parse_args()
    if asked.batch is not None:
        again = run_batch(asked.seed, asked.batch)
        print(*again.escapes, sep="\n")
        return bool(again.escapes)
    total, kinds = Tally(), Counter[str]()
    began = told = time.monotonic()
    for tally in run(asked.seed, asked.objects, workers=asked.workers):
        total.add(tally)
        kinds.update(one.strip().rpartition("\n")[2] for one in tally.escapes)
        del total.escapes[20:]
        if time.monotonic() - told > 30:
            told = time.monotonic()
            _tell(asked.seed, total, kinds, told - began)
            _write(asked.out, asked.seed, total, kinds, told - began)
    _tell(asked.seed, total, kinds, time.monotonic() - began)
    _write(asked.out, asked.seed, total, kinds, time.monotonic() - began)
    print(*total.escapes[:5], sep="\n")
    return bool(kinds)


def _tell(seed: int, total: Tally, kinds: Counter[str], seconds: float) -> None:
    print(
        f"seed {seed}: {total.objects:,} objects in {seconds:,.0f} s, {total.unread:,} unread, "
        f"{total.decisions:,} decisions, {total.actions:,} actions, {total.refused:,} refused, "
        f"{kinds.total()} escapes",
        flush=True,
    )


def _write(out: Path, seed: int, total: Tally, kinds: Counter[str], seconds: float) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "fuzzed": total.objects,
        "escapes": kinds.total(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "unread": total.unread,
        "decisions": total.decisions,
        "actions": total.actions,
        "refused": total.refused,
        "kinds": dict(kinds.most_common(20)),
    }
    out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
