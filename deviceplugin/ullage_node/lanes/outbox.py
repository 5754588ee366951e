# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages to programs of a device: every grant is persisted before it is sent.

A grant, a place in a lane and an order to suspend are sent once they are on file. While the file
cannot be written they are held, the newest of each kind for each program, and all else continues:
refusals, ends of steps, places in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ullage.api.lanes import Grant, InLane, Message
from ullage.engines.lanes.records import Order
from ullage_node.lanes.device import DeviceLanes

LASTING: Final = Grant | InLane
"""Messages whose effect outlives the agent."""

Listener = TypeVar("Listener")


@dataclass(slots=True, kw_only=True)
class Outbox(Generic[Listener]):
    """The outbox of one device; one caller at a time.

    Attributes:
        lanes: The device's lanes.
        keep: Writes them; ``OSError`` on failure.
        listener: The current connection of a job; ``None`` = none.
        say: Sends a message on a connection.
        begin: Starts to carry out an order.
        problem: Reason why the current lanes could not be written; empty = they are on file.
    """

    lanes: DeviceLanes
    keep: Callable[[], None]
    listener: Callable[[str], Listener | None]
    say: Callable[[Listener, Message], None]
    begin: Callable[[Order], None]
    problem: str = ""
    _held: dict[tuple[str, type[Message]], tuple[Listener, Message]] = field(default_factory=dict)

    def kept(self) -> bool:
        """Write the lanes; true on success."""
        try:
            self.keep()
        except OSError as error:
            self.problem = str(error)
            return False
        self.problem = ""
        return True

    def deliver(
        self,
        sent: Sequence[tuple[str, Message]],
        orders: Sequence[Order] = (),
        *,
        changed: bool = False,
    ) -> bool:
        """Send what may be sent now, and hold the rest until the file was written.

        Args:
            sent: Messages for each job, in order.
            orders: Suspends and resumes; those that cannot begin yet are returned to the lanes.
            changed: The lanes have changed persistently, although there is no message.

        Returns:
            True if the current lanes were written.
        """
        lasts = changed or bool(orders) or any(isinstance(message, LASTING) for _, message in sent)
        if lasts and not self.kept():
            self.lanes.orders.extendleft(reversed(orders))
            for job, message in sent:
                listener = self.listener(job)
                if listener is None:
                    continue
                if isinstance(message, LASTING):
                    self._held[job, type(message)] = (listener, message)
                else:
                    self.say(listener, message)
            return False
        if not self.problem:
            self._say_held()
            for order in orders:
                self.begin(order)
        for job, message in sent:
            listener = self.listener(job)
            if listener is not None:
                self.say(listener, message)
        return lasts

    def _say_held(self) -> None:
        held, self._held = self._held, {}
        for (job, _), (listener, message) in held.items():
            if self.listener(job) == listener and self._stands(job, message):
                self.say(listener, message)

    def _stands(self, job: str, message: Message) -> bool:
        """True if a held grant is still valid: its program may have released it meanwhile."""
        if not isinstance(message, Grant):
            return True
        known = self.lanes.jobs.get(job)
        return known is not None and known.lease is not None and known.lease.lease == message.lease
