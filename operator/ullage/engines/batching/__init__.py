# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Batching of a model's requests: the requests that run together now or are refused at once.

Pure: distributions of run times in, batches out. It must never read a clock, hold a connection or
learn from an unfinished request.
"""
