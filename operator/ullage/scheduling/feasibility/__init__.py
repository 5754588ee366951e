# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of workloads, occupancy of devices, and the figures for the hard limits."""
