# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gives programs that share a device their turns, over one socket a container.

``device`` decides, without sockets and clocks, on top of ``ullage.engines.lanes``, and says how
lanes and programs are: ``steps`` takes what programs say, ``suspending`` the outcome of suspends;
both work on ``programs``, which tells the programs what changes. ``members`` are the containers,
``reports`` what their owners hear.

``server`` holds the sockets, ``peers`` says whose process is at the other end and whether it lives,
``moves`` carries out suspends, ``saved`` keeps the leases across a restart of the agent.
"""
