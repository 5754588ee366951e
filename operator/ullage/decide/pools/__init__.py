# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where instances come from: which node is of which pool, and what is learned of each pool."""
