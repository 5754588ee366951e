# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.straggler_ranks RANKS FOLDER ARGUMENTS...``: runs of the program, one by one.

Each of ``ARGUMENTS`` is a line of arguments of ``bench/straggler_program.py``. Ranks are forks of
this process, so that torch is imported once for all runs. What a run leaves is in ``FOLDER`` under
its number: reports, records of ranks, and what the ranks printed.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import straggler_program  # the program stands beside this file


def rank(number: int, ranks: int, port: int, arguments: Sequence[str]) -> int:
    """Be one rank; its exit status."""
    os.environ |= {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    sys.argv = ["program", *arguments]
    try:
        if {"--kind=accelerate", "--kind=trainer", "--kind=lightning"}.isdisjoint(arguments):
            straggler_program.main()
        else:
            import straggler_trainers

            straggler_trainers.main()
    except Exception:  # it is the whole process
        traceback.print_exc()
        return 1
    return 0


def run(ranks: int, out: Path, arguments: Sequence[str]) -> bool:
    """Run all ranks to their end; true if all succeeded."""
    out.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children: list[int] = []
    for number in range(ranks):
        child = os.fork()
        if not child:
            with (out / f"output-{number}").open("wb", buffering=0) as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                status = rank(number, ranks, port, [f"--out={out}", *arguments])
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    trace = Path(os.environ["ULLAGE_STEPS"]).parent / "trace"
    for record in trace.glob("record-*"):
        shutil.copy(record, out)
    return not any(ended)


def main() -> None:
    """Run all lines of arguments."""
    ranks, folder = int(sys.argv[1]), Path(sys.argv[2])
    for number, line in enumerate(sys.argv[3:]):
        done = run(ranks, folder / str(number), line.split())
        (folder / f"done-{number}").write_text(str(done))


if __name__ == "__main__":
    main()
