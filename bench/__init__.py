# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each prints one table (ours, baseline, limit) and writes its figures as JSON."""
