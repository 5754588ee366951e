# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of each kind of workload: pods, failures, interruptions, replicated state."""
