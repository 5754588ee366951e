# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Figures for the metrics, counted from snapshot and plan."""
