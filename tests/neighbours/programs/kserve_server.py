# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""KServe's own server with a model that gives its input back; ready once a file is there.

It takes in ready models only, as one is whose loading began again later.
``python kserve_server.py PORT FILE``; it writes a line for each request that it runs.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Same(Model):
    """Output ``x`` is input ``x``."""

    def __init__(self) -> None:
        super().__init__("same")
        self.ready = True

    def predict(
        self, payload: InferRequest, headers: object = None, response_headers: object = None
    ) -> InferResponse:
        print("ran", payload.inputs[0].shape[0], flush=True)
        array = payload.inputs[0].as_numpy()
        output = InferOutput("x", list(array.shape), "FP32", data=array.flatten().tolist())
        return InferResponse(payload.id or "none", "same", [output])


def reload(model: Same, port: int, file: Path) -> None:
    """Once the server listens, the model is not ready until the file is there."""
    while not listens(port):
        time.sleep(0.02)
    while not file.exists():
        model.ready = False
        time.sleep(0.02)
    model.ready = True


def listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    served = Same()
    threading.Thread(
        target=reload, args=(served, int(sys.argv[1]), Path(sys.argv[2])), daemon=True
    ).start()
    ModelServer(http_port=int(sys.argv[1]), enable_grpc=False).start([served])
