# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tiers of reliability: owners of a job's state, holders of its copy, cost of a loss.

Pure: records in, records out. It must never reach a member, read a clock or wait.
"""
