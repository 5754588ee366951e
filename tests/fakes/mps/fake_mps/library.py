# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The names that tests use; see the README."""

from fake_mps.dispatch import run_line, run_words
from fake_mps.hardware import DEFAULT_UUID, Gpu
from fake_mps.installation import Factory, Installation, RunningClient, inject
from fake_mps.machine import Machine, Options
from fake_mps.model import Answer, Client, ClientState, Hello, Server, ServerState
from fake_mps.rig import MemoryLogs, Rig, StandInServers, StillClock
from fake_mps.script import CommandRule, Event, Script, Start, Termination, load_script, read_script

__all__ = [
    "DEFAULT_UUID",
    "Answer",
    "Client",
    "ClientState",
    "CommandRule",
    "Event",
    "Factory",
    "Gpu",
    "Hello",
    "Installation",
    "Machine",
    "MemoryLogs",
    "Options",
    "Rig",
    "RunningClient",
    "Script",
    "Server",
    "ServerState",
    "StandInServers",
    "Start",
    "StillClock",
    "Termination",
    "inject",
    "load_script",
    "read_script",
    "run_line",
    "run_words",
]
