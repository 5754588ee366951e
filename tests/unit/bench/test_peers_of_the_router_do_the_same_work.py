# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Peers run the timed model of the benchmark; here with stand-ins for their libraries."""

from __future__ import annotations

import json
import os
import runpy
import socket
import stat
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import router as bench_router
from bench.progress import Progress
from bench.router_goodput import (
    BENTOML,
    OURS,
    RAY_SERVE,
    RAY_SETTINGS,
    RAY_WAIT_S,
    installed,
    peer_payload,
    peers,
)
from bench.router_load import Sent, open_loop
from bench.router_processes import Filling, Process, rayserve
from ullage.engines.batching.batch_time import BatchCosts

COSTS = BatchCosts(fixed_s=0.004, factors={1: 1.0, 2: 1.1, 4: 1.3})
NOBODY = Process(pids=(), port=1)
TICK_S = 1e-4
STAND_IN = """#!{python}
import http.server, json, os, signal, sys

class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = {{name: os.environ[name] for name in os.environ if name[:4] in ("BENC", "RAY_")}}
        with open("{seen}", "w") as seen:
            json.dump({{"words": sys.argv[1:], "told": told, "asked": asked}}, seen)
        body = b"[0.01]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
port = int(os.environ["BENCH_PORT"])
server = http.server.HTTPServer(("127.0.0.1", port), Answer)
print("listening", port, flush=True)
server.serve_forever()
"""


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def bare(**words: object) -> Callable[[object], object]:
    """A decorator of a peer's library that changes nothing."""
    assert words
    return lambda decorated: decorated


def bentoml_stand_in() -> dict[str, types.ModuleType]:
    library = types.ModuleType("bentoml")
    library.service = library.api = bare  # type: ignore[attr-defined]
    return {"bentoml": library}


def ray_stand_in() -> dict[str, types.ModuleType]:
    serve = types.ModuleType("ray.serve")
    serve.deployment = serve.batch = bare  # type: ignore[attr-defined]
    ray = types.ModuleType("ray")
    ray.serve = serve  # type: ignore[attr-defined]
    requests = types.ModuleType("starlette.requests")
    requests.Request = object  # type: ignore[attr-defined]
    responses = types.ModuleType("starlette.responses")
    responses.JSONResponse = list  # type: ignore[attr-defined]
    return {
        "ray": ray,
        "ray.serve": serve,
        "starlette": types.ModuleType("starlette"),
        "starlette.requests": requests,
        "starlette.responses": responses,
    }


def served(name: str, libraries: Mapping[str, types.ModuleType], patch: pytest.MonkeyPatch) -> Any:
    """The service that a peer's script defines, as an object."""
    for module, library in libraries.items():
        patch.setitem(sys.modules, module, library)
    patch.setenv("BENCH_FIXED_S", str(COSTS.fixed_s))
    patch.setenv("BENCH_FACTORS", json.dumps(dict(COSTS.factors)))
    for word in ("BENCH_LATENCY_MS", "BENCH_BATCH_SIZE"):
        patch.setenv(word, "4")
    for word in ("BENCH_BATCH_WAIT_S", "BENCH_LIMIT_S"):
        patch.setenv(word, "0.1")
    folder = Path(bench_router.__file__).parent
    return runpy.run_path(str(folder / f"{name}.py"))["Timed"]()


class Clock:
    """Time that passes by waiting alone."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, TICK_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock.monotonic)
    monkeypatch.setattr("asyncio.sleep", clock.sleep)
    return clock


@pytest.mark.parametrize(
    ("script", "libraries"),
    [("router_bentoml", bentoml_stand_in()), ("router_rayserve", ray_stand_in())],
    ids=["BentoML", "Ray Serve"],
)
@pytest.mark.parametrize("batch", [[0.02], [0.02, 0.05], [0.01, 0.3, 0.02]], ids=len)
def test_a_peers_batch_takes_what_the_benchmarks_model_takes(
    script: str,
    libraries: Mapping[str, types.ModuleType],
    batch: list[float],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = served(script, libraries, monkeypatch)
    run: Awaitable[list[float]] = service.infer(batch)
    before = clock.now_s
    assert step(run) == batch
    expected = COSTS.batch_s(len(batch), max(batch))
    assert expected <= clock.now_s - before <= expected + 2 * TICK_S


def step(run: Awaitable[list[float]]) -> list[float]:
    """Run to the end; nothing waits but for the clock, so no event loop is needed."""
    try:
        run.__await__().send(None)  # type: ignore[attr-defined]
    except StopIteration as ended:
        found: list[float] = ended.value
        return found
    raise AssertionError("it waits for something else")


def test_ray_serve_answers_what_the_benchmark_asks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = served("router_rayserve", ray_stand_in(), monkeypatch)

    class Asked:
        async def json(self) -> object:
            return json.loads(peer_payload(0.02, 1.0).partition(b"\r\n\r\n")[2])

    async def one(seconds: float) -> float:
        """What ``serve.batch`` makes of a function of a list."""
        return (await type(service).infer(service, [seconds]))[0]  # type: ignore[no-any-return]

    service.infer = one
    assert step(service(Asked())) == [0.02]
    assert clock.now_s > 100.0


def test_a_peer_counts_only_where_its_own_command_can_run(tmp_path: Path) -> None:
    assert installed(tmp_path) == {}
    serve = executable(tmp_path / "rayserve" / "bin" / "serve")
    (tmp_path / "bentoml" / "bin").mkdir(parents=True)
    (tmp_path / "bentoml" / "bin" / "bentoml").touch(0o644)
    assert installed(tmp_path) == {RAY_SERVE: serve}


def test_each_setting_of_ray_serve_is_a_peer_of_its_own() -> None:
    without = peers(NOBODY, COSTS, {})
    program = Path("serve")
    beside = peers(NOBODY, COSTS, {RAY_SERVE: program, BENTOML: program})
    assert {OURS, "static 1", "static 4"} <= set(without)
    added = set(beside) - set(without)
    assert len(added) == len(RAY_SETTINGS) + 1
    assert len([name for name in added if name.startswith(RAY_SERVE)]) == len(RAY_SETTINGS)


@pytest.mark.parametrize("name", [f"{RAY_SERVE} 16 wait 0pct", f"{RAY_SERVE} 8 wait 25pct"])
def test_ray_serve_is_told_costs_objective_and_how_batches_fill(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[BatchCosts, Filling, float]] = []

    @contextmanager
    def started(_: Path, costs: BatchCosts, filling: Filling, limit_s: float) -> Iterator[Process]:
        told.append((costs, filling, limit_s))
        yield NOBODY

    monkeypatch.setattr("bench.router_goodput.rayserve", started)
    with peers(NOBODY, COSTS, {RAY_SERVE: tmp_path})[name].start(0.4):
        pass
    [(costs, filling, limit_s)] = told
    assert (costs, limit_s) == (COSTS, 0.4)
    assert filling.size == max(COSTS.factors), "the model takes no larger batch"
    assert filling.wait_s == (RAY_WAIT_S if name.endswith(" 0pct") else 0.1)


def test_ray_serves_process_is_asked_and_leaves_nothing(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    program = executable(tmp_path / "bin" / "serve")
    executable(program.with_name("python"), STAND_IN.format(python=sys.executable, seen=seen))
    with rayserve(program, COSTS, Filling(size=4, wait_s=0.05), 0.2) as process:
        sent = Sent(due_s=0.0, payload=peer_payload(0.01, 0.2))
        assert open_loop(process.port, [sent]).statuses == {200: 1}
    found = json.loads(seen.read_text("utf-8"))
    told = found["told"]
    assert found["asked"] == {"seconds": [0.01]}
    assert found["words"][0] == "-P", "the benchmark's folder hides no module of Ray"
    assert Path(found["words"][1]).name == "router_rayserve.py"
    assert json.loads(told["BENCH_FACTORS"]) == {"1": 1.0, "2": 1.1, "4": 1.3}
    assert (told["BENCH_FIXED_S"], told["BENCH_LIMIT_S"]) == ("0.004", "0.2")
    assert (told["BENCH_BATCH_SIZE"], told["BENCH_BATCH_WAIT_S"]) == ("4", "0.05")
    assert told["RAY_USAGE_STATS_ENABLED"] == "0"
    assert not Path(told["BENCH_FOLDER"]).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pids[0], 0)


def test_a_peer_that_does_not_start_is_no_peer_with_nothing_in_time(tmp_path: Path) -> None:
    program = executable(tmp_path / "serve")
    executable(program.with_name("python"), f"#!{sys.executable}\nraise SystemExit(1)\n")
    with (
        pytest.raises(RuntimeError, match="did not start"),
        rayserve(program, COSTS, Filling(size=4, wait_s=0.05), 0.2),
    ):
        pass


def test_a_refusal_in_chunks_is_an_answer_like_any_other() -> None:
    refusal = (
        b"HTTP/1.1 408 Request Timeout\r\ntransfer-encoding: chunked\r\n\r\n4\r\nlate\r\n0\r\n\r\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                for _ in range(2):
                    client.recv(10_000)
                    client.sendall(refusal)

        server = threading.Thread(target=answer)
        server.start()
        port = listening.getsockname()[1]
        later = [Sent(due_s=due, payload=peer_payload(0.01, 1.0)) for due in (0.0, 0.2)]
        found = open_loop(port, later)
        server.join()
    assert found.statuses == {408: 2}
    assert found.met == 0


@pytest.mark.parametrize("absent", [BENTOML, RAY_SERVE])
def test_the_best_peer_is_not_judged_while_one_is_absent(
    absent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name in (BENTOML, RAY_SERVE) if name != absent]
    monkeypatch.setattr(bench_router, "installed", lambda _: dict.fromkeys(names, Path("x")))
    rates = {"load60_slo1": {OURS: 0.9, "static 1": 0.5, **dict.fromkeys(names, 0.6)}}
    monkeypatch.setattr(bench_router, "goodput", lambda *_: rates)
    with Progress() as progress:
        figures = bench_router.compared(progress)
    assert f"not measured: goodput beside {absent}; it is not installed" in capsys.readouterr().err
    assert figures["goodput_vs_best_peer"] is None
    assert figures["worst_cell_vs_peer"] is None
    assert figures["load60_slo1_router"] == 0.9


def test_the_best_setting_of_a_peer_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    both = dict.fromkeys((BENTOML, RAY_SERVE), Path("x"))
    monkeypatch.setattr(bench_router, "installed", lambda _: both)
    rates = {
        "a": {OURS: 0.9, BENTOML: 0.5, f"{RAY_SERVE} 4": 0.8, f"{RAY_SERVE} 8": 0.2},
        "b": {OURS: 0.9, BENTOML: 0.5, f"{RAY_SERVE} 4": 0.4, f"{RAY_SERVE} 8": 0.6},
    }
    monkeypatch.setattr(bench_router, "goodput", lambda *_: rates)
    with Progress() as progress:
        figures = bench_router.compared(progress)
    assert figures["goodput_vs_best_peer"] == pytest.approx(1.8 / 1.2)
    assert figures["worst_cell_vs_peer"] == pytest.approx(0.9 / 0.8)
