# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules turns of programs that share a device, over one socket per container.

``device`` decides, without sockets and clocks, on top of ``ullage.engines.lanes``, and reports the
state of lanes and programs: ``steps`` handles the programs' messages, ``suspending`` the outcome of
suspends; both work on ``programs``, which notifies the programs of changes. ``members`` are the
containers, ``reports`` the reports to their owners.

``server`` holds the sockets, ``peers`` identifies the connected processes and detects their end,
``moves`` carries out suspends, ``saved`` persists the leases across a restart of the agent.
"""
