# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference pages and parts of the chart from the code of operator and agent."""
