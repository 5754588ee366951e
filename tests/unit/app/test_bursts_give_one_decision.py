# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The trigger turns bursts into one decision and silence into resyncs."""

import asyncio

from ullage.app.trigger import Trigger


def _trigger(resync_s: float = 30.0) -> Trigger:
    return Trigger(idle_s=0.01, max_s=0.1, resync_s=resync_s)


async def test_a_burst_of_pokes_gives_one_decision() -> None:
    trigger = _trigger()
    for number in range(100):
        trigger.poke(f"pods-{number % 2}")
    assert await trigger.wait() == {"pods-0", "pods-1"}
    assert trigger.pokes.total() == 100


async def test_silence_gives_a_resync() -> None:
    assert await _trigger(resync_s=0.02).wait() == {"resync"}


async def test_a_stream_of_pokes_cannot_put_the_decision_off_for_ever() -> None:
    trigger = _trigger()
    decided = asyncio.create_task(trigger.wait())
    for _ in range(1000):
        if decided.done():
            break
        trigger.poke("pods")
        await asyncio.sleep(0.002)
    assert decided.done()


async def test_a_wish_to_be_woken_is_answered_without_a_poke() -> None:
    trigger = _trigger()
    trigger.wake_in(0.01)
    assert await trigger.wait() == {"timer"}


async def test_a_poke_during_the_decision_is_not_lost() -> None:
    trigger = _trigger()
    trigger.poke("first")
    await trigger.wait()
    trigger.poke("second")
    assert await trigger.wait() == {"second"}


async def test_a_slow_decision_is_followed_by_a_longer_pause() -> None:
    trigger = _trigger()
    loop = asyncio.get_running_loop()
    trigger.rest(0.1)
    began = loop.time()
    trigger.poke("pods")
    await trigger.wait()
    assert loop.time() - began >= 0.19


async def test_one_very_slow_decision_does_not_stop_decisions_for_twice_its_time() -> None:
    trigger = Trigger(idle_s=0.0, max_s=0.0, resync_s=10.0, rest_most_s=0.1)
    loop = asyncio.get_running_loop()
    trigger.rest(25.0)
    trigger.poke("pods")
    async with asyncio.timeout(5.0):
        began = loop.time()
        await trigger.wait()
    assert loop.time() - began >= 0.09
