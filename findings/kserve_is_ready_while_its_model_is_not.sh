#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# KServe's readiness of the server says nothing of its model.
#
# One might think: a readiness probe on /v2/health/ready of a KServe model server keeps requests
# away while its model cannot answer.
#
# Seen with kserve 0.21.0: without a predictor behind it that answer is a constant. While the only
# model of a server is not ready, for instance because it loads other weights, /v2/health/ready
# answers 200 {"ready": true}; /v2/models/NAME/ready and requests for inference answer 503. A
# Deployment with that probe sends clients to replicas that refuse them; the probe has to name the
# model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/run.py" <<'PY'
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request

import kserve

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    PORT = free.getsockname()[1]
TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}


class Model(kserve.Model):
    def __init__(self):
        super().__init__("m")
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        output = kserve.InferOutput("y", [1], "FP32", [1.0])
        return kserve.InferResponse("1", "m", [output])


def ask(path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def look(model):
    while True:
        try:
            ask("/v2/health/live")
        except OSError:
            time.sleep(0.3)
        else:
            break
    for ready in (True, False):
        model.ready = ready
        print("model ready:", ready)
        for path in ("/v2/health/ready", "/v2/models/m/ready"):
            print(" ", path, ask(path))
        print("  infer", ask("/v2/models/m/infer", json.dumps({"inputs": [TENSOR]}).encode()))
    os._exit(0)


model = Model()
threading.Thread(target=look, args=(model,), daemon=True).start()
kserve.ModelServer(http_port=PORT, enable_grpc=False, workers=1).start([model])
PY

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kserve==0.21.0
PYTHONUNBUFFERED=1 "$folder/venv/bin/python" "$folder/run.py" 2>"$folder/errors" | grep -E "^(model|  )" | tee "$folder/seen"

diff - "$folder/seen" <<'SEEN'
model ready: True
  /v2/health/ready 200
  /v2/models/m/ready 200
  infer 200
model ready: False
  /v2/health/ready 200
  /v2/models/m/ready 503
  infer 503
SEEN
