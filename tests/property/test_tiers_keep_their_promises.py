# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps are whole and even, epochs grow, cuts never go back, over any joins, notices and losses."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from oracles.state_store_book import Ledger, Receipt, consistent_cut, new_epoch, receive
from ullage.engines.tiers.decide import decide
from ullage.engines.tiers.flush import Link, feasibility
from ullage.engines.tiers.maps import divide, hosts
from ullage.engines.tiers.records import (
    OnNotice,
    Situation,
    StateSource,
    TierMember,
    TierSettings,
    TierWhy,
)
from ullage.engines.tiers.stages import TierStage

LINK = Link(
    state_bytes=50_000_000,
    dirty_bytes_per_step=25_000_000,
    host_bytes_per_s=25e6,
    state_store_bytes_per_s=25e6,
)
NAMES = ("k0", "k1", *(f"s{number}" for number in range(5)))
MEMBERS = st.lists(
    st.builds(
        lambda name, left, hazard: TierMember(
            name=name,
            node=f"n-{name}",
            pool=f"p{int(name[1]) % 2}" if name[0] == "s" else "on-demand",
            reliable=name[0] == "k",
            hazard_per_hour=hazard,
            notice_left_s=left,
        ),
        st.sampled_from(NAMES),
        st.sampled_from([None, None, None, 0.1, 3.0, 30.0]),
        st.sampled_from([0.1, 0.5]),
    ),
    min_size=1,
    unique_by=lambda one: one.name,
).map(tuple)
SETTINGS = st.builds(
    TierSettings,
    pinned=st.sampled_from([None, None, *TierStage]),
    on_notice=st.sampled_from(OnNotice),
    shards=st.integers(1, 6),
    blocks=st.integers(1, 9),
)
EVENTS = st.lists(
    st.tuples(
        MEMBERS, st.sampled_from([None, 0, 1, 2]), st.sampled_from([10.0, 400.0]), st.booleans()
    ),
    min_size=1,
    max_size=8,
)


@examples(60, many=150)
@given(chosen=SETTINGS, events=EVENTS)
def test_invariants_hold_through_any_schedule(
    chosen: TierSettings, events: list[tuple[tuple[TierMember, ...], int | None, float, bool]]
) -> None:
    maps, heard = None, 0
    for step, (members, lag, since_s, interrupted) in enumerate(events, 3):
        seen = Situation(
            members=members,
            link=LINK,
            notice_s=30.0,
            maps=maps,
            since_s=since_s,
            step=step,
            step_s=1.0,
            committed=None if lag is None else step - lag,
            heard=heard,
        )
        found = decide(seen, chosen)
        assert decide(replace(seen, members=members[::-1]), chosen) == found
        running = {one.name for one in members}
        staying = {one.name for one in members if one.stays or chosen.on_notice is OnNotice.IGNORE}
        new = found.maps
        assert len(new.owners) == chosen.shards  # one owner each
        if staying:
            assert {*new.owners, *new.backups, *new.workers} <= (staying or running)
            assert new.stage is not TierStage.RELIABLE or not new.backups
            assert not set(new.owners) & set(new.backups)
        if maps is None or new != maps:
            assert new.epoch == max(heard, maps.epoch if maps else 0) + 1
        else:
            assert not staying or heard <= new.epoch  # who heard of other maps is told
        if maps is not None and staying:
            gone = set(maps.owners) - running
            assert not gone or found.source is not StateSource.NONE
            if gone:  # the store is none of the members: it is there whoever is gone
                assert (found.source is StateSource.STATE_STORE) == (lag is not None)
            if found.source is StateSource.STATE_STORE:
                assert found.lost_steps == lag
            if not gone and found.reason not in (TierWhy.ROLLED_BACK, TierWhy.ALL_OWNERS_LOST):
                assert found.lost_steps in (0, None)
        heard = max(heard, new.epoch)
        if not interrupted:
            maps = new


@examples(60, many=100)
@given(
    events=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 2)), max_size=40)
)
def test_cuts_only_grow_and_equal_the_minimum_of_what_arrived(
    events: list[tuple[int, int, int]],
) -> None:
    book, received, once = Ledger(shards=3), {}, set()
    for shard, step, epoch in events:
        if epoch > book.epoch:
            before = book.committed
            book = new_epoch(book, epoch)
            received = {} if before is None else dict.fromkeys(range(3), before)
            assert book.committed == before
            once = {(s, c, e) for s, c, e in once if before is not None and c <= before}
        old = book
        book, verdict = receive(book, shard=shard, step=step, epoch=epoch)
        if verdict in (Receipt.STORED, Receipt.COMMITTED):
            assert (shard, step, epoch) not in once
            once.add((shard, step, epoch))
            received[shard] = step
        else:
            assert book == old
        assert (book.committed or 0) >= (old.committed or 0)
        cut = consistent_cut(received, 3)
        assert book.committed == (cut if book.partial is None or old.committed else book.committed)
        assert book.partial is None or book.committed is None or book.partial > book.committed


@given(
    now=st.lists(st.sampled_from("abcd"), min_size=1, max_size=5).map(tuple),
    among=st.lists(st.sampled_from("abc"), min_size=1, unique=True),
)
def test_maps_are_even_and_move_no_more_than_any_even_map(
    now: tuple[str, ...], among: list[str]
) -> None:
    def moves(one: tuple[str, ...]) -> int:
        return sum(old != new for old, new in zip(now, one, strict=True))

    def even(one: tuple[str, ...]) -> bool:
        had = Counter(one)
        return max(had[name] for name in among) - min(had[name] for name in among) <= 1

    found = divide(len(now), among, now=now)
    assert even(found)
    every = itertools.product(among, repeat=len(now))
    assert moves(found) == min(moves(one) for one in every if even(one))


@given(
    pools=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.1, 0.4, 1.0])), max_size=6),
    count=st.integers(1, 6),
)
def test_hosts_are_spread_and_then_the_least_endangered(
    pools: list[tuple[str, float]], count: int
) -> None:
    members = [
        TierMember(name=f"m{n}", node=f"n{n}", pool=pool, hazard_per_hour=hazard)
        for n, (pool, hazard) in enumerate(pools)
    ]
    found = hosts(members, count)

    def spread(chosen: tuple[TierMember, ...]) -> int:
        return sum(n * n for n in Counter(one.pool for one in chosen).values())

    picked = tuple(one for one in members if one.name in found)
    assert len(picked) == min(count, len(members))
    every = list(itertools.combinations(members, len(picked)))
    assert spread(picked) == min(map(spread, every))
    for pool in {one.pool for one in picked}:
        inside = [one.hazard_per_hour for one in picked if one.pool == pool]
        outside = [one.hazard_per_hour for one in members if one.pool == pool and one not in picked]
        assert not outside or max(inside) <= min(outside)


@given(
    dirty=st.integers(1, 50_000_000),
    host=st.floats(1e5, 1e9),
    state_store=st.floats(1e5, 1e9),
    owners=st.integers(1, 8),
    state_stores=st.integers(1, 4),
    notice_s=st.floats(1, 200),
)
def test_what_is_said_to_help_is_the_least_that_does(
    dirty: int, host: float, state_store: float, owners: int, state_stores: int, notice_s: float
) -> None:
    link = replace(
        LINK, dirty_bytes_per_step=dirty, host_bytes_per_s=host, state_store_bytes_per_s=state_store
    )

    def fits(n: int, k: int, lag: int = 2) -> bool:
        made = replace(link, max_lag_steps=lag)
        return feasibility(made, owners=n, state_stores=k, notice_s=notice_s, shards=8).feasible

    found = feasibility(link, owners=owners, state_stores=state_stores, notice_s=notice_s, shards=8)
    if found.feasible:
        assert found.flush_s <= notice_s / 2
        return
    by_owners = next((n for n in range(1, 9) if fits(n, state_stores)), None)
    assert found.owners_needed == by_owners
    if found.state_stores_needed is not None:
        assert found.state_stores_needed == 1 or not fits(owners, found.state_stores_needed - 1)
        assert found.flush_s > notice_s / 2
        assert fits(owners, found.state_stores_needed)
    lags = (lag for lag in range(link.max_lag_steps - 1, link.every_steps - 1, -1))
    assert found.lag_needed == next((lag for lag in lags if fits(owners, state_stores, lag)), None)


def test_a_lag_that_helps_is_known_when_the_state_is_smaller_than_what_changes() -> None:
    link = replace(
        LINK, dirty_bytes_per_step=25_050_001, host_bytes_per_s=1e5, state_store_bytes_per_s=1e5
    )
    found = feasibility(link, owners=4, state_stores=3, notice_s=167.0, shards=8)
    assert (found.feasible, found.lag_needed) == (False, None)
