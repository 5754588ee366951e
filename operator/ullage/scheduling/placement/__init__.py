# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The queue, candidates, placement, preemption and downsizing."""
