# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Queues, batches and spreads the requests of a model over its replicas, before their deadlines.

Open Inference Protocol requests are batched along the first dimension, all other HTTP requests
are passed on one by one. Which of them run together, and which are refused at once, is decided by
``ullage.engines.batching``. Nothing that a user's program imports may import this package: it
needs what the extra ``router`` brings.
"""
