# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What follows from a provider's notice: nothing new on the node, and what is on it leaves in time.

A notice to terminate drains the node by class; a recommendation only keeps new work away.
"""
