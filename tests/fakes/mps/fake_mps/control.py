# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``nvidia-cuda-mps-control``: starts a daemon, or speaks to one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fake_mps import wire
from fake_mps.script import SCRIPT_VARIABLE, Script, load_script
from fake_mps.typed import PIPE_VARIABLE, speak

DEFAULT_PIPE = "/tmp/nvidia-mps"
DEFAULT_PIPE_V3_ROOT = "/run/nvidia-mps"
DEFAULT_LOG = "/var/log/nvidia-mps"

_HELP = """\
nvidia-cuda-mps-control - NVIDIA CUDA Multi Process Service management program

Usage:
  nvidia-cuda-mps-control [-d | -f] [-multiuser-server]{static}{v3}
  nvidia-cuda-mps-control [-h | -v]

  -d                 start the daemon in the background
  -f                 start the daemon in the foreground
  -v                 print the version of this binary
  -h, --help         print this text
  -multiuser-server  serve the clients of all users by one server
"""
_HELP_STATIC = "  -S                 start the daemon with static SM partitioning\n"
_HELP_V3 = """\
  -p <version>       protocol version, 2 or 3
  -m                 serve the clients of all users (protocol 3)
  -a <file>          apply a configuration once at the start (protocol 3)
  -q                 stop the daemon (protocol 3)
"""
_HELP_COMMANDS = "\nCommands read from standard input:\n"


@dataclass(slots=True)
class Call:
    """The command line, read."""

    daemon: bool = False
    foreground: bool = False
    static: bool = False
    multiuser: bool = False
    protocol: int = 2
    words: tuple[str, ...] = ()
    config: str | None = None


class Usage(Exception):
    """A command line that this binary does not know."""


def read_arguments(arguments: Sequence[str], script: Script, environ: Mapping[str, str]) -> Call:
    """Understand a command line as a binary with this script's versions does.

    Raises:
        Usage: an option that is unknown to such a binary.
    """
    call = Call()
    v3 = 3 in script.protocols
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            call.words = (*word.split(), *rest)
            break
        if word in ("-d", "--daemon"):
            call.daemon = True
        elif word in ("-f", "--foreground"):
            call.foreground = True
        elif word == "-multiuser-server" or (v3 and word in ("-m", "--multiuser")):
            call.multiuser = True
        elif word in ("-S", "--static-partitioning") and script.static_partitioning:
            call.static = True
        elif v3 and word in ("-q", "--quit"):
            call.words = ("quit",)
        elif v3 and word in ("-a", "--apply") and rest:
            call.config = rest.pop(0)
        elif v3 and word in ("-p", "--protocol") and rest[:1] in (["2"], ["3"]):
            call.protocol = int(rest.pop(0))
        else:
            raise Usage(f"Unknown option {word}")
    if v3 and environ.get("CUDA_MPS_PROTOCOL_VERSION") in ("2", "3"):
        call.protocol = int(environ["CUDA_MPS_PROTOCOL_VERSION"])  # wins over the flag
    return call


def help_text(script: Script) -> str:
    """The help of a binary with this script's versions; read it to see what it can do."""
    from fake_mps.v2 import COMMANDS

    v3, static = 3 in script.protocols, script.static_partitioning
    text = _HELP.format(static=" [-S]" if static else "", v3=" [-p <version>] [-m]" if v3 else "")
    hidden = () if static else ("sm_partition", "lspart")
    commands = "".join(f"  {name}\n" for name in COMMANDS if name not in hidden)
    return (
        text
        + (_HELP_STATIC if static else "")
        + (_HELP_V3 if v3 else "")
        + _HELP_COMMANDS
        + commands
    )


def pipe_directory(environ: Mapping[str, str], protocol: int = 2) -> str:
    """Where the control socket is looked for."""
    default = DEFAULT_PIPE_V3_ROOT if protocol == 3 and os.geteuid() == 0 else DEFAULT_PIPE
    return environ.get(PIPE_VARIABLE) or default


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the program; gives its exit status."""
    script = load_script(environ.get(SCRIPT_VARIABLE))
    if any(word in ("-h", "--help") for word in arguments):
        sys.stdout.write(help_text(script))
        return 0
    if any(word in ("-v", "--version") for word in arguments):
        print(f"Binary version: {script.binary_version}")
        return 0
    try:
        call = read_arguments(arguments, script, environ)
    except Usage as usage:
        print(f"{usage}\n\n{help_text(script)}", file=sys.stderr, end="")
        return 1
    if call.daemon or call.foreground or call.static:
        return _start(call, script, environ)
    return speak(pipe_directory(environ, call.protocol), call.words, environ)


def _start(call: Call, script: Script, environ: Mapping[str, str]) -> int:
    from fake_mps.daemon import ALREADY_RUNNING, AlreadyRunning, Daemon
    from fake_mps.machine import Options

    directory = pipe_directory(environ, call.protocol)
    if wire.too_long(f"{directory}/{wire.SOCKET_NAME}"):
        return 0 if call.daemon else 1  # as silent as the real one: no text, no log
    told = None if call.foreground else _to_background()
    if told is not None and told.pid:
        return told.wait()
    options = Options(
        protocol=call.protocol,
        static=call.static,
        multiuser=call.multiuser,
        uid=os.getuid(),
        pid=os.getpid(),
        visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
        pipe_directory=directory,
    )
    try:
        daemon = Daemon(options, script, environ.get("CUDA_MPS_LOG_DIRECTORY") or DEFAULT_LOG)
    except AlreadyRunning:
        print(ALREADY_RUNNING, flush=True)
        return 1
    if call.config is not None:
        from fake_mps.v3_config import ConfigError, apply_config

        try:
            apply_config(daemon.machine, call.config)
        except ConfigError as error:
            print(error, file=sys.stderr, flush=True)
            daemon.abandon()
            return 1
    if call.protocol == 3:
        print(
            f"To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY={directory}",
            flush=True,
        )
    if told is not None:
        told.ready()
    daemon.run()
    return 0


class _Told:
    """The pipe on which a background daemon tells its starter that it serves."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self._end = end

    def wait(self) -> int:
        return 0 if os.read(self._end, 1) else 1

    def ready(self) -> None:
        os.write(self._end, b"1")
        os.close(self._end)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)


def _to_background() -> _Told:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return _Told(pid, read_end)
    os.close(read_end)
    os.setsid()
    return _Told(0, write_end)
