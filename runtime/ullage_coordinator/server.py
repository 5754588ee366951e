# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job's coordinator and its state store in one process, on a machine that is not preempted.

``python -m ullage_coordinator.server --members N --state-bytes N [--dirty-bytes N] [--shards N]
[--listen HOST:PORT] [--keeper HOST:PORT] [--status HOST:PORT] [--token-file FILE] ...``

It prints ``listening LEAD-HOST LEAD-PORT KEEPER-HOST KEEPER-PORT``, then one JSON object for each
event; ``GET /status`` reports the job's progress. It must never print or return a token.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ullage.engines.tiers.flush import STATE_STORES, Link
from ullage.engines.tiers.records import OnNotice, TierSettings
from ullage.engines.tiers.stages import TierStage
from ullage_coordinator.coordinator import Coordinator, NeverJoined
from ullage_coordinator.maps import CoordinatorSettings
from ullage_coordinator.roster import Roster
from ullage_coordinator.state_store import ShardStore, StateStoreServer
from ullage_coordinator.status import StatusServer, Tale
from ullage_run.frames import Ending, address_of
from ullage_run.handshake import token_of
from ullage_run.times import SILENT_S

BAD_ARGUMENTS = 2
NEVER_JOINED = 3
STATE_LOST = 75
"""As EX_TEMPFAIL of sysexits.h: restart from a checkpoint."""
STATE_TOO_LARGE = 4
MOST_LINKS = 2048
"""Most connections to the state store: a member has two while it takes over shards."""
ENDED = 143
"""The exit code of a shell for SIGTERM."""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(prog="ullage_coordinator.server", description="coordinator")
    made.add_argument("--members", type=int, required=True, help="that the job begins with")
    made.add_argument("--least", type=int, help="that it begins with after a while (default: all)")
    made.add_argument("--state-bytes", type=int, required=True, help="largest size of one copy")
    made.add_argument("--dirty-bytes", type=int, help="changed by a step (default: all)")
    made.add_argument("--shards", type=int, default=64, help="pieces of the state")
    made.add_argument("--blocks", type=int, default=256, help="pieces of the data")
    made.add_argument("--owner-part", type=float, default=0.5, help="of transient members")
    made.add_argument("--stage", type=int, choices=[1, 2, 3], help="instead of by the ratio")
    made.add_argument("--on-notice", type=OnNotice, choices=list(OnNotice), default=OnNotice.FLUSH)
    made.add_argument("--notice-seconds", type=float, help="shortest notice of the machines")
    made.add_argument("--every-steps", type=int, default=1, help="between two pushes")
    made.add_argument("--max-lag-steps", type=int, default=2, help="of the copy")
    made.add_argument("--bytes-per-second", type=float, default=125e6, help="of each machine")
    made.add_argument("--silent-seconds", type=float, default=SILENT_S, help="then one is gone")
    made.add_argument("--join-seconds", type=float, default=600.0, help="for the first members")
    made.add_argument("--no-copy", action="store_true", help="every loss begins again")
    made.add_argument("--listen", default="127.0.0.1:0", help="HOST:PORT of the coordinator")
    made.add_argument(
        "--keeper", dest="state_store", default="127.0.0.1:0", help="HOST:PORT of the state store"
    )
    made.add_argument("--status", help="HOST:PORT where GET /status is answered (default: nowhere)")
    made.add_argument("--token-file", type=Path, help="what every peer must prove to hold")
    return made


def terms_of(given: argparse.Namespace) -> CoordinatorSettings:
    """Settings from the arguments.

    Raises:
        ValueError: they contradict each other; the text says what to change.
    """
    dirty = given.state_bytes if given.dirty_bytes is None else given.dirty_bytes
    return CoordinatorSettings(
        members=given.members,
        least=given.least,
        link=Link(
            state_bytes=given.state_bytes,
            dirty_bytes_per_step=dirty,
            host_bytes_per_s=given.bytes_per_second,
            state_store_bytes_per_s=given.bytes_per_second,
            every_steps=given.every_steps,
            max_lag_steps=given.max_lag_steps,
        ),
        settings=TierSettings(
            pinned=None if given.stage is None else TierStage(given.stage),
            on_notice=given.on_notice,
            owner_part=given.owner_part,
            shards=given.shards,
            blocks=given.blocks,
            state_stores=STATE_STORES,
        ),
        notice_s=given.notice_seconds,
        copy=not given.no_copy,
        join_s=given.join_seconds,
    )


def say(event: str, figures: Mapping[str, object]) -> None:
    """One event as a line of JSON."""
    print(json.dumps({"event": event, "at": round(time.time(), 3), **figures}), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Coordinate a job until its end.

    Returns:
        0 when its last step is finished, 75 when its state is lost, 4 when it is larger than its
        copy may be, 3 when its members did not join, 2 for invalid arguments.
    """
    given = parser().parse_args(arguments)
    tale = Tale()
    try:
        terms = terms_of(given)
        token = token_of(given.token_file)
        store = ShardStore(given.state_bytes)
        state_store_at = address_of(given.state_store, "--keeper")
        roster_at = address_of(given.listen, "--listen")
        told_at = address_of(given.status, "--status") if given.status else None
        state_store = StateStoreServer(store, state_store_at, token=token, most_links=MOST_LINKS)
        roster = Roster(roster_at, token=token, silent_s=given.silent_seconds)
        status_server = StatusServer(told_at, tale.answer) if told_at is not None else None
    except (OSError, ValueError) as error:
        print(f"lead: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    threading.Thread(target=state_store.serve, name="ullage-state-store", daemon=True).start()
    print("listening", *roster.address, *state_store.address, flush=True)

    def report(event: str, figures: Mapping[str, object]) -> None:
        tale.note(event, figures)
        say(event, figures)

    coordinator = Coordinator(roster, store, terms, report)
    tale.ask(coordinator.progress)
    try:
        ending = coordinator.run()
    except NeverJoined as error:
        print(f"lead: {error}", file=sys.stderr)
        return NEVER_JOINED
    finally:
        roster.close()
        state_store.close()
        if status_server is not None:
            status_server.close()
    return {Ending.FINISHED: 0, Ending.TOO_LARGE: STATE_TOO_LARGE}.get(ending, STATE_LOST)


def run() -> int:
    """Run as a process that SIGTERM ends: PID 1 of a container has no default handler."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED))
    return main()


if __name__ == "__main__":
    sys.exit(run())
