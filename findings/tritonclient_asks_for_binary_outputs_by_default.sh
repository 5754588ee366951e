#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# tritonclient over HTTP asks for binary outputs that nobody named.
#
# One might think: an input set with binary_data=False makes a plain JSON request, and its answer is
# JSON unless an output asks otherwise.
#
# Seen with tritonclient 2.73.0: a request without a list of outputs carries the parameter
# "binary_data_output": true of the binary data extension, also where all inputs are JSON. A proxy
# or server that knows the parameters of single outputs alone ("binary_data") misses it, and one
# that batches by equal parameters keeps such requests apart from others. Only a list of outputs,
# each with binary_data=False, gives a request of plain JSON.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/run.py" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

ANSWER = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}]}
ANSWER["outputs"][0]["data"] = [1.0]


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        outputs = [output.get("parameters") for output in request.get("outputs", [])]
        print("parameters:", request.get("parameters"), "of outputs:", outputs)
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = InferenceServerClient(f"127.0.0.1:{server.server_address[1]}")
tensor = InferInput("x", [1, 2], "FP32")
tensor.set_data_from_numpy(np.ones((1, 2), np.float32), binary_data=False)
client.infer("m", [tensor])
client.infer("m", [tensor], outputs=[InferRequestedOutput("y", binary_data=False)])
PY

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'tritonclient[http]==2.73.0'
"$folder/venv/bin/python" "$folder/run.py" 2>"$folder/errors" | tee "$folder/seen"

diff - "$folder/seen" <<'SEEN'
parameters: {'binary_data_output': True} of outputs: []
parameters: None of outputs: [{'binary_data': False}]
SEEN
