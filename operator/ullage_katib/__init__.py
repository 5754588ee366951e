# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lets a suggestion service of Katib choose the trials of a TuningJob.

A separate process with the user's rights: the operator never connects to an address from a tenant.
"""
