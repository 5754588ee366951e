# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Imported by the interpreter at start if this directory is on PYTHONPATH; installs the torch hook.

It hides another ``sitecustomize`` further down the path, so it runs that one too, and it must never
prevent a program from starting. The image's own ``ullage_run`` takes precedence over the one beside
this directory: it may have more modules.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))


def _run_next() -> None:
    """Run the ``sitecustomize`` that this one hides, if there is one."""
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("ULLAGE_STEPS"):
    sys.path.append(os.path.dirname(os.path.dirname(HERE)))
    try:
        from ullage_run import torch_hook
    except Exception as error:  # an older Python raises a SyntaxError
        print(f"ullage: steps of torch are not counted: {error}", file=sys.stderr)
    else:
        torch_hook.install()

_run_next()
