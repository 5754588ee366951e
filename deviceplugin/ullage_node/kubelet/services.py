# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Client and server of kubelet's gRPC services, derived from the protocol files."""

from __future__ import annotations

from types import SimpleNamespace

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


def stub_of(service: ServiceDescriptor, channel: grpc.aio.Channel) -> SimpleNamespace:
    """The client calls of a service on a channel, by method name."""
    calls = {}
    for method in service.methods:
        call = channel.unary_stream if method.server_streaming else channel.unary_unary
        calls[method.name] = call(
            f"/{service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
    return SimpleNamespace(**calls)


def serve_on(server: grpc.aio.Server, service: ServiceDescriptor, implementation: object) -> None:
    """Register an object's methods as a service; missing methods are unimplemented."""
    handlers = {}
    for method in service.methods:
        if (answer := getattr(implementation, method.name, None)) is None:
            continue
        handler = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[method.name] = handler(
            answer,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service.full_name, handlers),)
    )
