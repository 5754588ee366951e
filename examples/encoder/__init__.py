# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A transformer encoder of texts, on numpy: its work grows with the length of its input."""
