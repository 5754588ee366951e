# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Width and place of each trial of a tuning job: from a part of a device to several.

Pure: no I/O and no clock. It never chooses hyper-parameters; the caller samples them, starts pods
and takes checkpoints.
"""
