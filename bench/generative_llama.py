# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server with a small model of random weights: ``PORT PLACES``.

It runs in an environment of its own, with xllamacpp (MIT), the server as a library, and gguf (MIT).
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

WIDTH, LAYERS, HEADS, INNER = 256, 4, 8, 704
WORDS = 256
CONTEXT = 2048


def write_model(path: Path) -> None:
    """A model of Llama's architecture, with a vocabulary of bytes and two-letter words."""
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(str(path), "llama")
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    kinds = [2, 3, 3, *([6] * 256)]
    words = islice(product("abcdefghijklmnop", repeat=2), WORDS)
    tokens += [("\u2581" + "".join(word)).encode() for word in words]
    kinds += [1] * WORDS
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(at) for at in range(WORDS)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def drawn(name: str, *shape: int) -> None:
        weights = random.standard_normal(shape) / np.sqrt(shape[-1])
        writer.add_tensor(name, weights.astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    drawn("token_embd.weight", len(tokens), WIDTH)
    ones("output_norm.weight")
    drawn("output.weight", len(tokens), WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            drawn(f"{block}{name}.weight", WIDTH, WIDTH)
        drawn(block + "ffn_gate.weight", INNER, WIDTH)
        drawn(block + "ffn_up.weight", INNER, WIDTH)
        drawn(block + "ffn_down.weight", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Serve until killed."""
    port, places = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="bench-llama-") as folder:
        model = Path(folder) / "random.gguf"
        write_model(model)
        given = xllamacpp.CommonParams()
        given.model.path = str(model)
        given.hostnames, given.port = ["127.0.0.1"], port
        given.n_parallel, given.n_ctx = places, places * CONTEXT
        given.endpoint_metrics, given.warmup = True, False
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
        server = xllamacpp.Server(given)
        while server.listening_address:
            time.sleep(60)


if __name__ == "__main__":
    main()
