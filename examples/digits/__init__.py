# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small neural network that reads handwritten digits: trained, trained in parallel, served.

The programs behind the manifests in ``examples/``: real work on a real data set, small enough for
a part of one processor core, and short enough to be read in one sitting::

    data -> network -> training -> train | parallel (with allreduce)
                                -> serve <- load
"""
