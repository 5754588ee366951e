# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where prices of capacity come from: requests to make and answers to read, nothing more.

Whoever fetches owns time-outs, retries and credentials. It must never guess a price.
"""
