# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of a TuningJob: trials that start, continue and end, by its results and TrainingJobs."""
