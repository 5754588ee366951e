# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of what is observed and assumed, and the snapshots that are taken of it. Pure."""
