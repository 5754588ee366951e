# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gives programs that share a device their turns, over one socket a container.

``device`` decides, without sockets and clocks, on top of ``ullage.engines.lanes``; ``server`` holds
the sockets, ``peers`` says whose process is at the other end and whether it lives, ``saved`` keeps
the leases across a restart of the agent.
"""
