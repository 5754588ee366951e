# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""After a restart of the operator: the keeper's maps win, nothing begins before both agree."""

from __future__ import annotations

from dataclasses import replace

from ullage.engines.tiers.records import Standing
from ullage.engines.tiers.restart import agree
from ullage.engines.tiers.stages import Stage

OLD = Standing(stage=Stage.BACKED, epoch=4, owners=("s1",), backups=("keep",), workers=("s1",))
NEW = replace(OLD, epoch=5, owners=("s2",))


def test_maps_that_both_name_hold() -> None:
    found = agree(OLD, OLD)
    assert (found.standing, found.settled, found.heard) == (OLD, True, 4)


def test_a_switch_that_the_status_never_saw_is_taken_over_first() -> None:
    found = agree(OLD, NEW)
    assert (found.standing, found.settled, found.heard) == (NEW, False, 5)
    assert agree(found.standing, NEW).settled


def test_an_epoch_that_only_the_status_names_is_not_given_twice() -> None:
    found = agree(NEW, OLD)
    assert (found.standing, found.settled, found.heard) == (OLD, False, 5)


def test_a_keeper_that_should_have_maps_and_does_not_answer_is_waited_for() -> None:
    assert not agree(OLD, None).settled
    gone = agree(OLD, None, keeper_lost=True)
    assert (gone.standing, gone.settled) == (OLD, True)


def test_a_new_job_has_nothing_to_agree_on() -> None:
    found = agree(None, None)
    assert (found.standing, found.settled, found.heard) == (None, True, 0)
    alone = replace(OLD, stage=Stage.RELIABLE, backups=())
    assert agree(alone, None).settled
