# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The statuses of workloads: as records, and on the wire in both directions."""
