# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Coordinates a job in tiers: assignment of its work, and the copy of its state."""
