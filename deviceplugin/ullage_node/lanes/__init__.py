# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gives programs that share a device their turns, over one socket a container.

``device`` decides, without sockets and clocks, on top of ``ullage.engines.lanes``. It answers what
programs say by ``greetings`` and ``steps``, takes the outcome of suspends by ``suspending``, and
says how its lanes are by ``readings``; all of these work on ``programs``, which tells the programs
what changes. ``members`` are the containers, ``reports`` what their owners hear.

``server`` holds the sockets, ``peers`` says whose process is at the other end and whether it lives,
``moves`` carries out suspends, ``saved`` keeps the leases across a restart of the agent.
"""
