# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of observed and assumed state, and its snapshots. Pure."""
