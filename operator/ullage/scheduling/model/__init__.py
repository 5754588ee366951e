# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values that all phases of a cycle share: actions, plan, phases, conditions, view."""
