# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of steps: ordered from the programs of a container, and what they answer."""
