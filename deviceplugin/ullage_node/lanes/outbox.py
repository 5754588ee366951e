# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages to programs of a device: nothing is granted that the next agent would not know.

A grant, a place in a lane and an order to suspend go out once they are on file. While the file
cannot be written they wait, the newest of each kind for each program, and everything else goes on:
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
"""What a program acts on for longer than an agent lives."""

Listener = TypeVar("Listener")


@dataclass(slots=True, kw_only=True)
class Outbox(Generic[Listener]):
    """Of one device; one caller at a time.

    Attributes:
        lanes: Of the device.
        keep: Writes them; ``OSError`` where it cannot.
        listener: The connection of a job now; ``None`` = it has none.
        say: Tells a connection something.
        begin: Begins to carry out an order.
        problem: Why the lanes as they are could not be written; empty = they are on file.
    """

    lanes: DeviceLanes
    keep: Callable[[], None]
    listener: Callable[[str], Listener | None]
    say: Callable[[Listener, Message], None]
    begin: Callable[[Order], None]
    problem: str = ""
    _held: dict[tuple[str, type[Message]], tuple[Listener, Message]] = field(default_factory=dict)

    def kept(self) -> bool:
        """Write the lanes; whether that worked."""
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
        """Tell what may be told now, and hold the rest until the file was written.

        Args:
            sent: What each job is to be told, in order.
            orders: What is to be suspended and resumed; those that cannot begin yet go back to
                the lanes.
            changed: The lanes have changed in a way that lasts, although no one is told of it.

        Returns:
            Whether the lanes were written as they are.
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
        """True if a grant that waited still holds: its program may have let go of it meanwhile."""
        if not isinstance(message, Grant):
            return True
        known = self.lanes.jobs.get(job)
        return known is not None and known.lease is not None and known.lease.lease == message.lease
