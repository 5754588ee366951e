# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sends actions to the API server: in order, fenced, rate-limited, without duplicates."""
