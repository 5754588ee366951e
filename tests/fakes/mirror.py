# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A sink that keeps what a stream shows, to compare with what the server holds."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.cluster.values.streams import Stream
from ullage.ports import JsonObject


class Mirror:
    """Name -> resource version of every object it was told of."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.calls: list[str] = []
        self.blind_to: set[str] = set()
        """Names whose updates it loses, as a bug would."""
        self.fails: int = 0
        """This many of the next calls raise."""

    def replace(self, stream: Stream, items: Sequence[JsonObject], now: float) -> bool:
        """Take a whole list."""
        self._called("replace")
        before, self.held = self.held, dict(_seen(item) for item in items)
        return before != self.held

    def upsert(self, stream: Stream, item: JsonObject, now: float) -> bool:
        """Take one object."""
        self._called("upsert")
        name, version = _seen(item)
        if name in self.blind_to:
            return False
        changed = self.held.get(name) != version
        self.held[name] = version
        return changed

    def remove(self, stream: Stream, item: JsonObject, now: float) -> bool:
        """Forget one object."""
        self._called("remove")
        name, _ = _seen(item)
        if name in self.blind_to:
            return False
        return self.held.pop(name, None) is not None

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if self.fails > 0:
            self.fails -= 1
            raise RuntimeError("the sink is broken")


def _seen(item: JsonObject) -> tuple[str, str]:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)
    return metadata["name"], metadata["resourceVersion"]
