# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A member whose state is a chain of digests: one wrong bit in any step changes all later ones.

It starts in a fraction of a second, so that hundreds of losses fit into minutes. It prints the
epoch and number of each step that it begins, and at the end the digest of each shard that it owns.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Final

from ullage_run.frames import Buffer, Ending
from ullage_run.group import CoordinatorUnavailable, Group

SHARDS: Final = 6
SHARD_BYTES: Final = 32 * 1024
"""Large enough that a push takes several reads, small enough for steps of milliseconds."""
LEFT_ALONE: Final = 75
"""Exit code of a member whose coordinator is gone, or gave it up."""


def beginning(shard: int) -> bytes:
    """A shard before the first step."""
    return hashlib.shake_128(b"shard %d" % shard).digest(SHARD_BYTES)


def followed(value: bytes, total: bytes, shard: int, step: int) -> bytes:
    """A shard after a step; ``total`` is of all shards before it."""
    seed = hashlib.sha256(value + total + b"%d %d" % (shard, step)).digest()
    return hashlib.shake_128(seed).digest(SHARD_BYTES)


def total_of(digests: Mapping[int, bytes]) -> bytes:
    """One digest of all shards."""
    return hashlib.sha256(b"".join(digests[shard] for shard in range(SHARDS))).digest()


def digest(value: bytes) -> bytes:
    """Digest of a shard, 32 bytes."""
    return hashlib.sha256(value).digest()


def undisturbed(steps: int) -> dict[int, str]:
    """Digests of all shards after so many steps, as one process computes them."""
    values = {shard: beginning(shard) for shard in range(SHARDS)}
    for step in range(1, steps + 1):
        total = total_of({shard: digest(value) for shard, value in values.items()})
        values = {shard: followed(value, total, shard, step) for shard, value in values.items()}
    return {shard: digest(value).hex() for shard, value in values.items()}


class Chain:
    """The shards that this member owns."""

    def __init__(self) -> None:
        self.shards: dict[int, bytes] = {}

    def values(self, shard: int) -> Buffer:
        """Bytes of an owned shard."""
        return self.shards[shard]

    def take(self, shard: int, data: Buffer | None) -> None:
        """Own a shard, with these values or from the beginning."""
        self.shards[shard] = beginning(shard) if data is None else bytes(data)

    def drop(self, shard: int) -> None:
        """Own it no more."""
        del self.shards[shard]

    def digests(self) -> bytes:
        """Number and digest of each owned shard."""
        return b"".join(bytes([n]) + digest(value) for n, value in sorted(self.shards.items()))

    def apply(self, step: int, parts: Mapping[str, bytes]) -> None:
        """One step, from what all members gave."""
        size = 1 + hashlib.sha256().digest_size
        pieces = [part[i : i + size] for part in parts.values() for i in range(0, len(part), size)]
        total = total_of({piece[0]: piece[1:] for piece in pieces})
        for shard, value in self.shards.items():
            self.shards[shard] = followed(value, total, shard, step)


def main() -> int:
    """A member as a process; the environment says who it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    given = parser.parse_args()
    chain = Chain()
    group = Group.join(chain)

    def train(step: int) -> None:
        print(json.dumps({"epoch": group.epoch, "step": step}), flush=True)
        parts = group.gather(chain.digests())
        time.sleep(given.step_seconds)
        chain.apply(step, parts)

    try:
        ending = group.run(train, until=given.steps)
    except CoordinatorUnavailable:
        return LEFT_ALONE
    finally:
        group.close()
    if ending is Ending.FINISHED:
        for shard, value in sorted(chain.shards.items()):
            print(json.dumps({"shard": shard, "digest": digest(value).hex()}), flush=True)
    return 0 if ending is not Ending.STATE_LOST else LEFT_ALONE


if __name__ == "__main__":
    sys.exit(main())
