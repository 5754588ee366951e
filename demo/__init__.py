# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The demonstration: a real cluster on one machine, Ullage installed from its charts, examples run.

The end-to-end tests stand on the same steps, so what the demo shows is what is tested.
"""
