# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules the whole cluster in one pure cycle: from a snapshot to a plan. No I/O, no clock."""
