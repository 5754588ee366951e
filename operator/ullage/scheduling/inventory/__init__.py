# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes and devices of the cluster, interruptions, time limits, and the fit of pods on nodes."""
