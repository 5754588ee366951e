# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what the tuners of data loaders report, and tells it on their pods.

The reports are files of the tenant: plain, small, and about its own pod alone. Of a container the
rank with the lowest number speaks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage.api.captures import LOADER_BYTES_MOST, LOADER_FILES
from ullage.api.dataio import LoaderState, ObservedLoader
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage_node.events import AgentEvent, EventSubject
from ullage_node.model.devices import ContainerBinding, ContainerKey
from ullage_node.times import IO_WINDOW_S
from ullage_node.traces.folder import names_in, open_folder, read_plain

MOST_EVENTS: Final = 4
"""Events of one container: a program may report anything as often as it likes."""


def read_loader(steps_dir: Path) -> ObservedLoader | None:
    """The report of a container; ``None`` = there is none.

    Raises:
        OSError: it is no plain small file.
        WireError: it is malformed; the text says what is wrong.
    """
    try:
        folder = open_folder(steps_dir)
    except OSError:  # of a container without a directory for it
        return None
    try:
        names = names_in(folder)
        name = next((name for name in LOADER_FILES if name in names), None)
        raw = read_plain(folder, name, LOADER_BYTES_MOST) if name is not None else None
    finally:
        os.close(folder)
    return None if raw is None else _from_report(raw)


def _from_report(raw: bytes) -> ObservedLoader:
    try:
        body = json.loads(raw)
        first, best, wait = body["from"], body["to"], body["wait"]
        text = str(body["text"])
        wire = {
            "state": body["state"],
            "firstWorkers": first[0],
            "workers": best[0],
            "prefetch": best[1],
            "firstWaitPercent": wait[0],
            "waitPercent": wait[1],
            "message": "".join(letter for letter in text if letter.isprintable())[:200],
        }
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise WireError(f"report of a data loader: {error!r}"[:200]) from error
    return ObservedLoader.from_wire(wire)


@dataclass(slots=True)
class LoaderReports:
    """Reports of all containers of the node.

    Attributes:
        folder: Directory of a container's step records.
        say: Sends an Event.
        observed: Newest reports.
        invalid_total: Number of readings that were refused.
    """

    folder: Callable[[ContainerKey], Path]
    say: Callable[[AgentEvent], object]
    observed: Mapping[ContainerKey, ObservedLoader] = field(default_factory=dict)
    invalid_total: int = 0
    _due: float = 0.0
    _sent: dict[ContainerKey, list[str]] = field(default_factory=dict)
    """Texts of the Events of each container."""

    def look(self, bindings: Iterable[ContainerBinding], now: float) -> None:
        """Read the reports of these containers every few seconds; those of others are forgotten.

        Args:
            bindings: All prepared containers.
            now: Monotonic seconds.
        """
        if now < self._due:
            return
        self._due = now + IO_WINDOW_S
        observed: dict[ContainerKey, ObservedLoader] = {}
        sent: dict[ContainerKey, list[str]] = {}
        for binding in bindings:
            try:
                report = read_loader(self.folder(binding.key))
            except (OSError, WireError):
                self.invalid_total += 1
                continue
            if report is not None:
                observed[binding.key] = report
                sent[binding.key] = self._sent.get(binding.key, [])
                self._announce(binding, report, sent[binding.key])
        self.observed, self._sent = observed, sent

    def _announce(self, binding: ContainerBinding, report: ObservedLoader, sent: list[str]) -> None:
        text = report.text()
        if report.state is LoaderState.TUNING or text in sent or len(sent) >= MOST_EVENTS:
            return
        sent.append(text)
        subject = EventSubject(
            namespace=binding.pod_namespace, name=binding.pod_name, uid=binding.key.pod_uid
        )
        fixed = report.state is LoaderState.FIXED
        reason = Reason.IO_NOT_TUNED if fixed else Reason.IO_TUNED
        self.say(AgentEvent(subject=subject, reason=reason.value, message=text, warning=False))
