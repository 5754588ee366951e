#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# DistributedDataParallel and its default bucket size, written out.
#
# One might think: DDP(model, bucket_cap_mb=25) is DDP(model), since the documentation gives 25 as
# the default.
#
# Seen with torch 2.15.0: without the argument the first bucket takes 1 MiB only and the others 25.
# With an explicit 25 the first bucket takes 25, too. The gradients of the last layers, which are
# ready first, then wait for 24 MiB of others, and the first all-reduce starts later in the backward
# pass. The logging data say bucket_cap_bytes = 26214400 in both cases. A tuner that compares sizes
# has to take "no argument" as its baseline, not 25.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/run.py" <<'PY'
import os
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=0, world_size=1)
for arguments in ({}, {"bucket_cap_mb": 25}):
    layers = [torch.nn.Linear(512, 512) for _ in range(30)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), **arguments)
    for _ in range(3):  # buckets are built again in the order in which gradients came
        model(torch.ones(1, 512)).sum().backward()
    data = model._get_ddp_logging_data()
    print(arguments, data["bucket_cap_bytes"], "buckets:", data["rebuilt_bucket_sizes"])
PY

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy
STORE="$folder/store" "$folder/venv/bin/python" "$folder/run.py" 2>"$folder/errors" | tee "$folder/seen"

diff - "$folder/seen" <<'SEEN'
{} 26214400 buckets: 1050624, 26265600, 4202496
{'bucket_cap_mb': 25} 26214400 buckets: 26265600, 5253120
SEEN
