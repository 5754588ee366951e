# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``batching.grpcPort``: the Service has a port for gRPC, though the replicas speak HTTP."""

from __future__ import annotations

import grpc

from bench import wake
from e2e.stack import Stack, eventually
from fakes.grpc_batch_server import SERVICE
from ullage_router.proto import open_inference_pb2 as messages

GRPC_PORT = 9000


def test_the_service_takes_grpc_at_a_port_of_its_own_and_http_at_the_first(
    stack: Stack, namespace: str
) -> None:
    body = wake.service(namespace)
    body["spec"]["scaling"]["minReplicas"] = 1
    stack.apply(body)
    eventually(
        lambda: stack.status(wake.KIND, wake.NAME, namespace).get("readyReplicas") == 1,
        within_s=180,
        what="a replica is ready",
    )
    body["spec"]["batching"]["grpcPort"] = GRPC_PORT
    stack.apply(body)

    def ports() -> list[int]:
        found = stack.get("service", wake.NAME, namespace) or {}
        return [one["port"] for one in found.get("spec", {}).get("ports", [])]

    eventually(lambda: ports() == [wake.PORT, GRPC_PORT], within_s=60, what="the port is there")
    service = stack.get("service", wake.NAME, namespace)
    assert service is not None
    address = service["spec"]["clusterIP"]
    asked = messages.ModelInferRequest(model_name="digits")
    tensor = asked.inputs.add(name="pixels", datatype="FP64", shape=[1, 64])
    tensor.contents.fp64_contents.extend([8.0] * 64)
    problem = ""

    def answered() -> bool:
        nonlocal problem
        with grpc.insecure_channel(f"{address}:{GRPC_PORT}") as channel:
            infer = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=messages.ModelInferRequest.SerializeToString,
                response_deserializer=messages.ModelInferResponse.FromString,
            )
            try:
                answer = infer(asked, timeout=10)
            except grpc.RpcError as error:
                problem = repr(error)
                return False
        return len(answer.outputs) >= 1 and answer.outputs[0].shape[0] == 1

    try:
        eventually(answered, within_s=120, what="an answer over gRPC")
    except AssertionError as error:
        raise AssertionError(f"{error}; {problem}") from None
    url = wake.url_of(stack.cluster, namespace)
    eventually(lambda: not wake.ask(url, 30.0), within_s=60, what=f"{url} answers")
