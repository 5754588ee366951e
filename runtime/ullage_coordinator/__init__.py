# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Leads a job in tiers: who computes what, and the copy of its state."""
