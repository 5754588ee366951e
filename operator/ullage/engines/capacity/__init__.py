# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of capacity: pools, instances in each, spot or on-demand, and the time of a move.

Pure: records in, records out. It must never create a machine, read a clock or wait.
"""
