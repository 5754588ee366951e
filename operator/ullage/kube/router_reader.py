# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a router how many requests arrive, and is answered as soon as one does.

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
"""Routers that are asked at the same time; each question waits in a router."""


class RouterSilent(Exception):
    """A router did not answer, or said what no router says; the text says what."""


class RouterReader:
    """Reads ``GET /load`` of routers."""

    def __init__(self, *, port: int = METRICS_PORT, timeout_s: float = ROUTER_ANSWER_S) -> None:
        self._pages = PodPages(port=port, timeout_s=timeout_s, at_once=AT_ONCE)

    async def read(self, address: str, after: int | None) -> RouterReport:
        """The load of a router, as soon as it differs.

        Args:
            address: Of the router's pod.
            after: Requests that had arrived when it was asked before; ``None`` = it was not, and
                answers at once.

        Raises:
            RouterSilent: it does not say.
        """
        query = {} if after is None else {"after": str(after), "wait": str(ROUTER_WAIT_S)}
        try:
            return router_report(await self._pages.get(address, LOAD_PATH, query))
        except PageUnreadable as error:
            raise RouterSilent(str(error)) from error
        except WireError as error:
            text = shortened(str(error))
            raise RouterSilent(f"{address} does not answer as a router: {text}") from error
