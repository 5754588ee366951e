# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``nvidia-cuda-mps-control`` as it is called most: commands are typed, a daemon answers.

Must never import what only a daemon needs: a start of the interpreter is most of what it costs.
"""

from __future__ import annotations

import sys

from fake_mps import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_DAEMON = "Cannot find MPS control daemon process"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the program; gives its exit status."""
    directory = environ.get(PIPE_VARIABLE)
    if not arguments and directory:
        return speak(directory, (), environ)
    from fake_mps import control

    return control.main(arguments, environ)


def speak(directory: str, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Send a command, or each typed line, to the daemon of a pipe directory."""
    try:
        connection = wire.dial(directory)
    except wire.NoDaemon:
        print(NO_DAEMON)
        return 1
    with connection:
        reader, claimed = wire.Reader(connection), environ.get(wire.UID_VARIABLE)
        if words:
            return abs(_ask(connection, reader, words, claimed))
        for line in sys.stdin:
            if line.strip() and _ask(connection, reader, line.split(), claimed) < 0:
                return 1
    return 0


def _ask(
    connection: wire.Socket,
    reader: wire.Reader,
    words: Sequence[str],
    claimed_uid: str | None,
) -> int:
    """Send one command and print its answer; below zero when the daemon is gone."""
    message: dict[str, object] = {"words": list(words)}
    if claimed_uid:
        message["claimed_uid"] = int(claimed_uid)
    wire.send(connection, message)
    messages: list[dict[str, object]] | None = []
    while messages == []:
        messages = reader.read()
    if messages is None:
        print("Lost the connection to the MPS control daemon", file=sys.stderr)
        return -1
    text, code = str(messages[0]["text"]), messages[0]["exit"]
    if text:
        print(text, flush=True)
    return code if isinstance(code, int) else 1
