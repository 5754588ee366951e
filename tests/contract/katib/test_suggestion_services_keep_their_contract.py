# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The fake suggestion service keeps what Katib's own keep; see the neighbours' tests for those."""

from __future__ import annotations

from fakes import katib_promises
from fakes.katib_service import katib_service


async def test_trials_of_a_search_come_from_it() -> None:
    async with katib_service() as service:
        await katib_promises.trials_of_a_search_come_from_it(service.address, "random")


async def test_a_search_goes_on_after_a_restart_of_both() -> None:
    async with katib_service() as service:

        async def restart() -> str:
            service.forget()
            return service.address

        await katib_promises.it_goes_on_where_it_ended(service.address, "random", restart)


async def test_unknown_algorithms_are_refused() -> None:
    async with katib_service() as service:
        await katib_promises.it_refuses_what_it_does_not_know(service.address)
