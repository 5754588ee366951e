# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What every step of a cycle speaks of: actions, the plan, phases, conditions, the view."""
