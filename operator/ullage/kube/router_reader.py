# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the number of arrived requests from a router, by a long poll.

The answer is untrusted until every figure of it was checked.
"""

from __future__ import annotations

from typing import Final

from ullage.api.readers import WireError
from ullage.cluster.records.router import RouterReport, router_report
from ullage.kube.manifests.router import METRICS_PORT
from ullage.kube.pod_pages import PageUnreadable, PodPages
from ullage.kube.times import ROUTER_ANSWER_S, ROUTER_WAIT_S
from ullage.process.faults import shortened

LOAD_PATH: Final = "/load"
AT_ONCE: Final = 2_000
"""Routers that are queried at the same time; each query waits in a router."""


class RouterSilent(Exception):
    """A router did not answer, or gave an invalid answer; the text has the problem."""


class RouterReader:
    """Reads ``GET /load`` of routers."""

    def __init__(self, *, port: int = METRICS_PORT, timeout_s: float = ROUTER_ANSWER_S) -> None:
        self._pages = PodPages(port=port, timeout_s=timeout_s, at_once=AT_ONCE)

    async def read(self, address: str, after: int | None) -> RouterReport:
        """The load of a router, as soon as it changes.

        Args:
            address: Address of the router's pod.
            after: Arrived requests in its last answer; ``None`` = there was none, and it answers at
                once.

        Raises:
            RouterSilent: there is no valid answer.
        """
        query = {} if after is None else {"after": str(after), "wait": str(ROUTER_WAIT_S)}
        try:
            return router_report(await self._pages.get(address, LOAD_PATH, query))
        except PageUnreadable as error:
            raise RouterSilent(str(error)) from error
        except WireError as error:
            text = shortened(str(error))
            raise RouterSilent(f"{address} does not answer as a router: {text}") from error
