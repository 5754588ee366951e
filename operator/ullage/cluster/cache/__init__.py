# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Observed objects, with writes that are assumed until they are observed."""
