#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# torch.profiler's Chrome traces and their field baseTimeNanoseconds.
#
# One might think: baseTimeNanoseconds is the time at which this process or this capture began, so
# that "ts" counts from there and every rank has a base of its own; and displayTimeUnit "ms" is the
# unit of "ts".
#
# Seen with torch 2.15.0: the base is a constant that lies long before the process (here two
# months), the same in two processes that start seconds apart. "ts" is in microseconds with three
# decimals, whatever displayTimeUnit says. Only base + 1000 * ts is the time since the epoch in
# nanoseconds; who takes ts as the time since the capture began is off by the two months. The sum
# needs integers: a double has steps of 256 ns at that size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/run.py" <<'PY'
import json
import sys
import time
from decimal import Decimal

import torch
from torch.profiler import ProfilerActivity, profile

began = time.time_ns()
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    torch.ones(4).sum()
ended = time.time_ns()
profiler.export_chrome_trace(sys.argv[1])
with open(sys.argv[1], encoding="utf-8") as file:
    trace = json.load(file, parse_float=Decimal)
base = trace["baseTimeNanoseconds"]
sums = [base + int(event["ts"] * 1000) for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
print(trace["displayTimeUnit"], began - base > 60 * 10**9, all(began <= at <= ended for at in sums))
print(base, file=sys.stderr)
PY

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy
for process in 1 2; do
  "$folder/venv/bin/python" "$folder/run.py" "$folder/$process.json" 2>"$folder/errors"
  grep -E '^[0-9]{19}$' "$folder/errors" >>"$folder/bases"
  sleep 2
done | tee "$folder/seen"

diff - "$folder/seen" <<'SEEN'
ms True True
ms True True
SEEN
test "$(sort -u "$folder/bases" | wc -l)" = 1
echo "one base for both: $(sort -u "$folder/bases")"
