# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Found by the interpreter at start when this folder is on PYTHONPATH; arms the torch hook.

It takes the place of another ``sitecustomize`` further down the path, so it runs that one too, and
it must never keep a program from starting. A ``ullage_run`` that the image brings comes before the
one beside this folder: it may have more in it.
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
    except Exception as error:  # an older Python reads it as a SyntaxError
        print(f"ullage: steps of torch are not counted: {error}", file=sys.stderr)
    else:
        torch_hook.install()

_run_next()
