# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One cycle from beginning to end, and the actions that lead to its plan."""
