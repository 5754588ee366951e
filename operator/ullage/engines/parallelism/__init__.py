# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plans for models that outgrow a device: stages, degrees, schedules, memory and step times.

Pure: records in, records out. A plan names the frameworks that can execute it; a plan that none can
execute is advice.
"""
