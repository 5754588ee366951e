# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of capacity pools for workloads, and requests for nodes from them."""
