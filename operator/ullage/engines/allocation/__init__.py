# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Division of time: of each job on each accelerator type, and who runs in the next round.

Policies turn measured or estimated speeds into a long-run target X; rounds realise it. Nothing here
knows a device, a pod or a clock: the same code decides in the operator and in the simulator.
"""
