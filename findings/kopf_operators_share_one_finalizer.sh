#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
#
# kopf and finalizers of two operators on one kind.
#
# One might think: an operator takes away the finalizer that it has added, and one whose handlers do
# not match an object leaves the object alone.
#
# Seen with kopf 1.45.2: every kopf operator has the same finalizer unless its settings name another
# one, and an operator that has any handler for the kind, with filters that do not match the object,
# takes this finalizer away as one that none of its handlers requires. So an operator for objects
# labelled "team: b" removes what an operator for "team: a" holds its objects back with, and the
# deletion handler of the latter never runs. Two replicas of one operator with different handlers
# (one leads, one stands by) do the same to each other: settings.persistence.finalizer has to differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/run.py" <<'PY'
import asyncio
import json
import logging
import warnings

import jsonpatch
import kopf
from aiohttp import web

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
ROOT = "/apis/example.org/v1"
THING = {
    "apiVersion": "example.org/v1",
    "kind": "Thing",
    "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "labels": {"team": "a"}},
    "spec": {},
}
seen = asyncio.Event()


async def apis(request):
    version = {"version": "v1"}
    group = {"name": "example.org", "versions": [version], "preferredVersion": version}
    return web.json_response({"groups": [group]})


async def kinds(request):
    thing = {"name": "things", "singularName": "thing", "kind": "Thing", "namespaced": False}
    return web.json_response({"resources": [{**thing, "verbs": ["list", "watch", "patch"]}]})


async def core(request):
    if request.path == "/api":
        return web.json_response({"versions": ["v1"]})
    space = {"name": "namespaces", "singularName": "namespace", "kind": "Namespace"}
    verbs = {"namespaced": False, "verbs": ["list", "watch"]}
    return web.json_response({"resources": [{**space, **verbs}]})


async def things(request):
    if "watch" not in request.query:
        meta = {"resourceVersion": THING["metadata"]["resourceVersion"]}
        return web.json_response({"kind": "ThingList", "metadata": meta, "items": [THING]})
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await seen.wait()
        seen.clear()
        line = json.dumps({"type": "MODIFIED", "object": THING})
        await answer.write(line.encode() + b"\n")


async def patch(request):
    body = await request.json()
    if request.content_type == "application/json-patch+json":
        THING.update(jsonpatch.apply_patch(THING, body))
    else:
        notes = THING["metadata"].setdefault("annotations", {})
        notes.update(body.get("metadata", {}).get("annotations", {}))
    THING["metadata"]["resourceVersion"] = str(int(THING["metadata"]["resourceVersion"]) + 1)
    THING["metadata"] = {"finalizers": [], **THING["metadata"]}
    seen.set()
    return web.json_response(THING)


async def operate(url, team):
    registry, stop = kopf.OperatorRegistry(), asyncio.Event()

    @kopf.on.login(registry=registry)
    def login(**_):
        return kopf.ConnectionInfo(server=url)

    @kopf.on.delete("example.org", "v1", "things", labels={"team": team}, registry=registry)
    def deleted(**_):
        pass

    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    operator = kopf.operator(
        registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop
    )
    task = asyncio.create_task(operator)
    await asyncio.sleep(4)
    stop.set()
    await task
    print(f"after the operator of team {team}: {THING['metadata'].get('finalizers')}")


async def serve():
    app = web.Application()
    app.router.add_get("/apis", apis)
    app.router.add_get("/api", core)
    app.router.add_get("/api/v1", core)
    app.router.add_get(ROOT, kinds)
    app.router.add_get(f"{ROOT}/things", things)
    app.router.add_patch(f"{ROOT}/things/a", patch)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}"


def main():
    import threading

    loop = asyncio.new_event_loop()  # kopf cancels every task of its own loop at its end
    threading.Thread(target=loop.run_forever, daemon=True).start()
    url = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    for team in ("a", "b"):
        asyncio.run(operate(url, team))


main()
PY

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kopf==1.45.2 aiohttp==3.14.5
"$folder/venv/bin/python" "$folder/run.py" 2>"$folder/errors" | tee "$folder/seen"

diff - "$folder/seen" <<'SEEN'
after the operator of team a: ['kopf.zalando.org/KopfFinalizerMarker']
after the operator of team b: []
SEEN
