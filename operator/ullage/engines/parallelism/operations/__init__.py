# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of modules placed on the devices of one node and put in order (Pesto, Middleware 2021)."""
