# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Queues and batches the requests of a model for its replicas, within their deadlines.

Open Inference Protocol requests are batched along the first dimension, all other HTTP requests are
passed on one by one. ``ullage.engines.batching`` decides which of them run together, and which are
refused at once. Modules that a user's program imports must not import this package: it needs the
extra ``router``.
"""
