# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the status of a tiered job from its coordinator.

The answer is untrusted until every figure of it was checked.
"""

from __future__ import annotations

from typing import Final

from ullage.api.readers import WireError
from ullage.cluster.records.tier import CoordinatorReport, report_from_wire
from ullage.kube.manifests.tiers import STATUS_PATH, STATUS_PORT
from ullage.kube.pod_pages import PageUnreadable, PodPages
from ullage.kube.times import COORDINATOR_ANSWER_S
from ullage.process.faults import shortened

AT_ONCE: Final = 16
"""Coordinators that are queried at the same time."""


class CoordinatorSilent(Exception):
    """A coordinator did not answer, or gave an invalid answer; the text has the problem."""


class CoordinatorReader:
    """Reads ``GET /status`` of coordinators."""

    def __init__(self, *, port: int = STATUS_PORT, timeout_s: float = COORDINATOR_ANSWER_S) -> None:
        self._pages = PodPages(port=port, timeout_s=timeout_s, at_once=AT_ONCE)

    async def read(self, address: str) -> CoordinatorReport | None:
        """State of a job; ``None`` before its first maps.

        Args:
            address: Address of the coordinator's pod.

        Raises:
            CoordinatorSilent: there is no valid answer.
        """
        try:
            return report_from_wire(await self._pages.get(address, STATUS_PATH))
        except PageUnreadable as error:
            raise CoordinatorSilent(str(error)) from error
        except WireError as error:
            text = f"{address} does not answer as a coordinator: {shortened(str(error))}"
            raise CoordinatorSilent(text) from error
