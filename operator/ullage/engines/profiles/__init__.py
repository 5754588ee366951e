# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads steps from the traces of frameworks, in framework-neutral records.

Pure: text in, records out. It must never guess values missing from a trace.
"""
