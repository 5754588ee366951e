# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the loop hands to the metrics, counted from snapshot and plan."""
