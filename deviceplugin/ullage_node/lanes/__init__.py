# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gives programs that share a device their turns, over one socket a container.

``device`` decides, without sockets and clocks, on top of ``ullage.engines.lanes``: ``greetings``
and ``steps`` take what programs say, ``suspending`` the outcome of suspends; these three work on
``programs``, which tells the programs what changes. ``readings`` says how lanes and programs are,
``members`` are the containers, ``reports`` what their owners hear.

``server`` holds the sockets, ``peers`` says whose process is at the other end and whether it lives,
``moves`` carries out suspends, ``saved`` keeps the leases across a restart of the agent.
"""
