# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The process that analyses one trace, and ends: ``python -m ullage_node.traces.analyse FILE``.

A trace is a tenant's file, so the process first takes from itself whatever a hostile one could use
up: CPU time, memory, files, priority. On standard output it prints one JSON object: ``summary`` (a
``RankTrace``), or ``reason`` and ``message``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
import sys
from collections.abc import Generator, Mapping
from typing import Final

from ullage_node.times import ANALYSIS_CPU_S

ADDRESSES: Final = 1 << 30
"""Bytes of address space; libraries reserve about a third of it. Chosen."""
MEMORY: Final = 384 << 20
"""Bytes of data, within the limit of the agent's container; 200 MB take about 80 MiB. Chosen."""
WRITTEN: Final = 64 << 10
"""Bytes that it may write into a file, if its output is one."""
OPEN_FILES: Final = 64
NICE: Final = 5
READ: Final = 1 << 20
"""Bytes read at a time."""
FIRST_TO_GO: Final = "1000"
"""Under memory pressure the kernel ends this process before the agent."""


def main() -> int:
    """Analyse the file that the command line names; 0 also where it is refused."""
    if len(sys.argv) != 2:
        print(f"usage: python -m {__spec__.name if __spec__ else ''} FILE", file=sys.stderr)
        return 2
    confine()
    print(json.dumps(outcome_of(sys.argv[1]), separators=(",", ":")))
    return 0


def confine() -> None:
    """Limit this process for good; libraries are loaded after it."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for kind, most in (
        (resource.RLIMIT_CPU, ANALYSIS_CPU_S),
        (resource.RLIMIT_AS, ADDRESSES),
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_FSIZE, WRITTEN),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    os.nice(NICE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(FIRST_TO_GO)


def outcome_of(path: str) -> Mapping[str, object]:
    """The object to print about a trace."""
    from ullage.engines.tracing.limits import TraceError
    from ullage.engines.tracing.summary import summarised

    try:
        with contextlib.closing(chunks_of(path)) as chunks:
            return {"summary": summarised(chunks).to_wire()}
    except TraceError as error:
        return {"reason": error.reason.value, "message": str(error)}
    except MemoryError:
        text = f"its analysis needs more than {MEMORY >> 20} MiB of memory; trace fewer steps"
        return {"reason": "TraceTooLarge", "message": text}
    except OSError as error:
        return {"reason": "TraceInvalid", "message": f"it cannot be read: {error.strerror}"}


def chunks_of(path: str) -> Generator[bytes, None, None]:
    """The content of a plain file; links are not followed.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is no plain file")
        while chunk := os.read(file, READ):
            yield chunk
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
