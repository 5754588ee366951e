#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# openai (Python client) and Retry-After on a 429.
#
# One might think: a server that knows when it has room says so in Retry-After, and a client that
# may try twice more comes back then, or at worst after its own pauses.
#
# Seen with openai 3.57.0: a 429 with "Retry-After: 121" ends the call at once, after one request,
# whatever max_retries says; with "Retry-After: 1" there are three requests. Seen with openai 2.8.0:
# with 121 there are three requests within two seconds: the header is passed over for the client's
# own pauses. So a long honest Retry-After means "never" to one version and "now" to the other; a
# server that wants to be asked again keeps it at 60 s or less.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/ask.py" <<'PY'
import http.server
import json
import sys
import threading

import openai

requests = []
BODY = json.dumps({"error": {"message": "busy", "type": "rate_limit_error", "code": "busy"}}).encode()


class Busy(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        requests.append(self.path)
        self.send_response(429)
        self.send_header("Retry-After", sys.argv[1])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(
    base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=2
)
try:
    client.completions.create(model="any", prompt="any")
except openai.RateLimitError:
    print(f"openai {openai.__version__}, Retry-After {sys.argv[1]}: {len(requests)} requests")
PY

for version in 3.57.0 2.8.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "openai==$version"
    for seconds in 1 121; do
        "$folder/$version/bin/python" "$folder/ask.py" "$seconds" | tee -a "$folder/seen"
    done
done

diff - "$folder/seen" <<'SEEN'
openai 3.57.0, Retry-After 1: 3 requests
openai 3.57.0, Retry-After 121: 1 requests
openai 2.8.0, Retry-After 1: 3 requests
openai 2.8.0, Retry-After 121: 3 requests
SEEN
