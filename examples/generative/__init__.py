# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A generative server on numpy that batches continuously, and a load for it."""
