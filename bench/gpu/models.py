# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The workloads as torch modules: random weights, real shapes, fixed seeds.

Each builder gives a function that runs one iteration. Needs torch, torchvision and transformers,
all looked up by name. Shapes are those of the plan; none has been timed yet.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from bench.gpu.catalogue import WORKLOADS

Step = Callable[[], object]
GRAPH_WARM = 11


def build(torch: Any, name: str) -> tuple[Step, bool]:
    """One iteration of a workload, and whether it is a CUDA graph.

    Raises:
        KeyError: there is no such workload.
    """
    spec = WORKLOADS[name]
    step: Step = _BUILDERS[name](torch)
    return (_captured(torch, step), True) if spec.graph else (step, False)


def _captured(torch: Any, step: Step) -> Step:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(GRAPH_WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Step = graph.replay
    return replay


def _train(torch: Any, model: Any, inputs: tuple[Any, ...], loss: Callable[[Any], Any]) -> Step:
    model = model.cuda().train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(model(*inputs))
        value.backward()
        optimiser.step()

    return step


def _infer(torch: Any, model: Any, inputs: tuple[Any, ...]) -> Step:
    model = model.cuda().to(torch.bfloat16).eval()

    def step() -> object:
        with torch.no_grad():
            return model(*inputs)

    return step


def _vision(name: str, batch: int, *, train: bool) -> Callable[[Any], Step]:
    def make(torch: Any) -> Step:
        model = getattr(importlib.import_module("torchvision.models"), name)(weights=None)
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        if not train:
            return _infer(torch, model, (images.to(torch.bfloat16),))
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        cross = torch.nn.functional.cross_entropy
        return _train(torch, model, (images,), lambda out: cross(out, labels))

    return make


def _bert(batch: int, *, train: bool) -> Callable[[Any], Step]:
    def make(torch: Any) -> Step:
        transformers = importlib.import_module("transformers")
        config = transformers.BertConfig(attn_implementation="sdpa")
        tokens = torch.randint(0, config.vocab_size, (batch, 128), device="cuda")
        model = transformers.BertModel(config)
        if not train:
            return _infer(torch, model, (tokens,))
        return _train(
            torch, model, (tokens,), lambda out: out.last_hidden_state.float().pow(2).mean()
        )

    return make


def _gpt_train(torch: Any) -> Step:
    transformers = importlib.import_module("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa"))
    tokens = torch.randint(0, 50257, (4, 512), device="cuda")
    return _train(torch, model, (tokens,), lambda out: out.logits.float().logsumexp(-1).mean())


class _Decoder:
    """Layers of a decoder with weights of their own and a filled cache; one token, or a prefill."""

    def __init__(self, torch: Any, *, layers: int, width: int, heads: int) -> None:
        self._f, self._heads = torch.nn.functional, heads
        shape = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
        self._weights = [
            [torch.randn(*one, device="cuda", dtype=torch.bfloat16) * 0.02 for one in shape]
            for _ in range(layers)
        ]

    def step(self, hidden: Any, cache: Any) -> Any:
        batch, length, width = hidden.shape
        for number, (qkv, out, up, down) in enumerate(self._weights):
            parts = self._f.linear(self._f.layer_norm(hidden, (width,)), qkv).chunk(3, -1)
            q, k, v = (one.view(batch, length, self._heads, -1).transpose(1, 2) for one in parts)
            if cache is not None:
                k, v = cache[number]
            mixed = self._f.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            hidden = hidden + self._f.linear(mixed.transpose(1, 2).reshape(hidden.shape), out)
            wide = self._f.gelu(self._f.linear(self._f.layer_norm(hidden, (width,)), up))
            hidden = hidden + self._f.linear(wide, down)
        return hidden


def _decoder(
    layers: int, width: int, heads: int, *, batch: int, length: int, context: int
) -> Callable[[Any], Step]:
    """``context`` tokens lie in the cache (decode); 0 = a prefill of ``length`` tokens."""

    def make(torch: Any) -> Step:
        new = {"device": "cuda", "dtype": torch.bfloat16}
        model = _Decoder(torch, layers=layers, width=width, heads=heads)
        hidden = torch.randn(batch, length, width, **new)
        cached = (batch, heads, context, width // heads)
        cache = [
            (torch.randn(*cached, **new), torch.randn(*cached, **new)) for _ in range(layers)
        ] if context else None  # fmt: skip

        def step() -> object:
            with torch.no_grad():
                return model.step(hidden, cache)

        return step

    return make


def _dlrm(torch: Any) -> Step:
    nn = torch.nn
    tables = nn.ModuleList(
        nn.EmbeddingBag(1_000_000, 64, mode="sum", sparse=True) for _ in range(8)
    )
    tables = tables.cuda()
    dense = nn.Sequential(nn.Linear(8 * 64, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    rows = torch.randint(0, 1_000_000, (8, 4096, 16), device="cuda")
    slow = torch.optim.SGD(tables.parameters(), lr=1e-3)
    fast = torch.optim.SGD(dense.parameters(), lr=1e-3)

    def step() -> None:
        slow.zero_grad(set_to_none=True)
        fast.zero_grad(set_to_none=True)
        picked = torch.cat([table(one) for table, one in zip(tables, rows, strict=True)], 1)
        dense(picked).pow(2).mean().backward()
        slow.step()
        fast.step()

    return step


def _unet(torch: Any) -> Step:
    nn = torch.nn

    def convs(inside: int, outside: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(32, outside), nn.SiLU(),
            nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(32, outside), nn.SiLU(),
        )  # fmt: skip

    class Unet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.start, self.middle = convs(4, 320), convs(320, 640)
            self.attend = nn.MultiheadAttention(640, 10, batch_first=True)
            self.end, self.last = convs(960, 320), nn.Conv2d(320, 4, 3, padding=1)

        def forward(self, image: Any) -> Any:
            high = self.start(image)
            low = self.middle(nn.functional.avg_pool2d(high, 2))
            flat = low.flatten(2).transpose(1, 2)
            flat = flat + self.attend(flat, flat, flat, need_weights=False)[0]
            low = nn.functional.interpolate(flat.transpose(1, 2).view_as(low), scale_factor=2.0)
            return self.last(self.end(torch.cat([high, low], 1)))

    image = torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16)
    return _infer(torch, Unet(), (image,))


def _lstm(torch: Any) -> Step:
    nn = torch.nn
    model = nn.LSTM(512, 1024, num_layers=2, batch_first=True)
    return _train(
        torch, model, (torch.randn(64, 64, 512, device="cuda"),), lambda out: out[0].pow(2).mean()
    )


def _stream(torch: Any) -> Step:
    left, right, out = (torch.randn(512 * (1 << 20) // 12, device="cuda") for _ in range(3))
    return lambda: torch.add(left, right, alpha=3.0, out=out)


def _gemm(torch: Any) -> Step:
    left, right = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def _l2(torch: Any) -> Step:
    half = torch.randn(4 << 20, device="cuda")
    out = torch.empty_like(half)

    def step() -> None:
        for _ in range(16):
            torch.add(half, 1.0, out=out)

    return step


_BUILDERS: dict[str, Callable[[Any], Step]] = {
    "R50T": _vision("resnet50", 64, train=True),
    "R50I": _vision("resnet50", 8, train=False),
    "BERTT": _bert(32, train=True),
    "BERTI": _bert(16, train=False),
    "GPT2D": _decoder(12, 768, 12, batch=16, length=1, context=512),
    "VITT": _vision("vit_b_16", 64, train=True),
    "DLRM": _dlrm,
    "PRE": _decoder(6, 4096, 32, batch=1, length=2048, context=0),
    "DEC": _decoder(6, 4096, 32, batch=8, length=1, context=512),
    "UNET": _unet,
    "R18T": _vision("resnet18", 128, train=True),
    "LSTMT": _lstm,
    "GPT2T": _gpt_train,
    "CONVT": _vision("convnext_tiny", 32, train=True),
    "VITI": _vision("vit_b_16", 8, train=False),
    "STREAM": _stream,
    "GEMM": _gemm,
    "L2T": _l2,
}
