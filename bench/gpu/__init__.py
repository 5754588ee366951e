# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measurements on a machine with one GPU: what tenants do to each other under MPS.

Every part also runs on a CPU against the fakes and says so in each file that it writes. Nothing
here changes clocks, compute mode, persistence or MIG, and nothing resets a GPU.
"""
