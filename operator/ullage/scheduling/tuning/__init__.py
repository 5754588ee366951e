# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which trials of a TuningJob run, go on and end, by its results and its TrainingJobs."""
