# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A member of the replayed gang: the example's program, with notes on what happens to it.

Runs in the examples' container, which has the example, ``ullage_run`` and nothing of the bench; its
text is handed over as a command. It changes nothing that the example does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

import ullage_run
from digits import parallel

FOLDER = os.environ["SPOT_NOTES"]
ME = {
    "pod": socket.gethostname(),
    "node": os.environ["SPOT_NODE"],
    "rank": os.environ.get("RANK", "0"),
    "world": os.environ.get("WORLD_SIZE", "1"),
}
HEART = f"heart-{ME['pod']}-{time.time_ns()}"


def note(**said: object) -> None:
    """Append a line; lines this short are written whole."""
    line = json.dumps({**ME, "heart": HEART, **said, "at": time.time()}) + "\n"
    with open(os.path.join(FOLDER, "notes"), "a", encoding="utf-8") as notes:
        notes.write(line)


class Watched:
    """Counts steps beside the example, which goes on calling ``ullage_run``."""

    def __init__(self) -> None:
        self.done = 0
        self.fresh = True
        self.told = False
        flags = os.O_CREAT | os.O_WRONLY
        self.heart = os.open(os.path.join(FOLDER, HEART), flags, 0o644)
        self.step, self.stopping = ullage_run.step, ullage_run.stopping
        self.resumed = ullage_run.resumed

    def on_step(self, *words: Any, **said: Any) -> Any:
        """One more step is done."""
        self.done += 1
        os.pwrite(self.heart, b"%012d %020.6f\n" % (self.done, time.time()), 0)
        if self.fresh:
            self.fresh = False
            note(first=self.done)
        return self.step(*words, **said)

    def on_stopping(self) -> bool:
        """Note when the program learns that it has to stop."""
        told = self.stopping()
        if told and not self.told:
            self.told = True
            note(told=self.done)
        return told

    def on_resumed(self, step: Any) -> Any:
        """It goes on from a step."""
        self.done, self.fresh = int(step), True
        note(resumed=int(step))
        return self.resumed(step)


watched = Watched()
ullage_run.step = watched.on_step
ullage_run.stopping = watched.on_stopping
ullage_run.resumed = watched.on_resumed
note(begins=True)
code = parallel.main()
note(ends=code)
sys.exit(code)
