# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Division of time: of each job on each accelerator type, and the jobs of the next round.

Policies turn measured or estimated speeds into a long-run target X; rounds realise it. Nothing in
this package knows a device, a pod or a clock: operator and simulator share the code.
"""
