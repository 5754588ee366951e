# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Analysis of step traces of distributed training: time by use, and the rank that others wait for.

Pure: chunks of bytes in, records out. It must never read a file or a clock. A trace is a tenant's
file: each malformed or oversized thing in it is an error with its place, never a figure.
"""
