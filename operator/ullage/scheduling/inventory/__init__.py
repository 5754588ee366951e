# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the cluster has: nodes, devices, interruptions, time limits, and which pods fit a node."""
