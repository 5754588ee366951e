# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A fake of NVIDIA's Multi-Process Service: the control daemon, its servers and its clients.

The executables in ``bin`` stand in for the real ones on PATH; ``fake_mps.library`` is the same
machine on an injected clock. Needs the standard library only. Nothing is imported here, so that
a command starts fast.
"""
