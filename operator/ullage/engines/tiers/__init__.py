# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tiers of reliability: who owns a job's state, who holds its copy, what a loss costs.

Pure: records in, records out. It must never reach a member, read a clock or wait.
"""
