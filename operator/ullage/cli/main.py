# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage``: what runs, why something waits, who shares which device.

Reads only, but for ``profile import``, which writes one WorkloadProfile, and ``drain``, which
writes one taint of a Node.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer
from rich.console import Group, RenderableType

from ullage.api.contract import WireError
from ullage.api.reasons import Reason
from ullage.cli import cost as costs
from ullage.cli import doctor as nodes
from ullage.cli import drain as draining
from ullage.cli import (
    owners,
    profiles,
    recommend,
    simulate,
    tables,
    tables_policy,
    tables_tuning,
    traces,
    tuning,
)
from ullage.cli.look import (
    WORKLOADS,
    inside,
    isolation_of,
    look,
    look_as_allowed,
    quota_held,
    save,
    workloads,
)
from ullage.cli.output import Output, console_for, workloads_as
from ullage.cli.tables_scaling import scaling
from ullage.cli.target import Target
from ullage.cluster.records.snapshot import Snapshot, WorkloadRecord
from ullage.cluster.values.streams import (
    CAPACITY_POOLS,
    DEVICE_PROFILES,
    GPU_NODES,
    PODS,
    SCHEDULING_POLICIES,
    STREAMS,
    TRAINING_JOBS,
    WORKLOAD_PROFILES,
    Stream,
)
from ullage.kube.credentials import CredentialsError
from ullage.ports import ApiError, ClusterPort, Forbidden, NotFound

app = typer.Typer(
    name="kubectl ullage",
    help="What shares your GPUs, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
MOST_SHOWN = 10
"""Pods that one answer explains."""
console = console_for()
problems = console_for("stderr")

Answer = TypeVar("Answer")

profile = typer.Typer(help="Carry what was learned of a class of work from cluster to cluster.")
app.add_typer(profile, name="profile", no_args_is_help=True)
app.command("simulate")(simulate.command)

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; the context's when absent.")
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Form = Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print it again when it changes.")]
WATCH_S = 2.0
"""Seconds between two looks of ``--watch``."""


@app.callback(invoke_without_command=True)
def configure(
    context: typer.Context,
    kubeconfig: Annotated[
        str, typer.Option(help="Path of a kubeconfig.", envvar="KUBECONFIG")
    ] = "",
    cluster_context: Annotated[
        str, typer.Option("--context", help="Context of the kubeconfig; the current when absent.")
    ] = "",
    namespace: Namespace = "",
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Read what holds for every command."""
    if show_version:
        console.print(version("ullage"))
        raise typer.Exit
    path = kubeconfig or os.path.expanduser("~/.kube/config")
    context.obj = Target(kubeconfig=path, context=cluster_context, namespace=namespace)


@app.command()
def status(
    context: typer.Context,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    output: Form = Output.TABLE,
    watch: Watch = False,
) -> None:
    """Every workload in one line: phase, reason, place, share, predicted and observed slowdown."""
    if watch and not output.for_people:
        _fail("--watch prints tables only")
    wanted = list(inside((*WORKLOADS, PODS), _one_or_all(context, namespace, everywhere)))
    pods, wide = wanted[-1], output is Output.WIDE
    if not output.for_people:
        sys.stdout.write(workloads_as(workloads(_allowed(context, wanted, (pods,))), output))
        return
    if wide:
        wanted.append(SCHEDULING_POLICIES)

    def shown() -> RenderableType:
        seen = _allowed(context, wanted, (pods, SCHEDULING_POLICIES))
        return tables.overview(workloads(seen), time.time(), wide=wide, policy=seen.policy)

    _shown(shown, watch)


@app.command()
def why(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a TrainingJob or InferenceDeployment; or pod/NAME, deploy/NAME,"
            " job/NAME, … of pods that share devices by a label."
        ),
    ],
    namespace: Namespace = "",
    output: Form = Output.TABLE,
) -> None:
    """Why a workload is where it is, or waits; what binds, by how much, and what would help."""
    namespace = _inside(context, namespace)
    if "/" in name:
        return _why_pods(context, name, namespace, output)
    profiles = inside((WORKLOAD_PROFILES,), namespace)
    seen = _look(context, (*inside(WORKLOADS, namespace, name), *profiles))
    found = workloads(seen)
    if not found:
        _fail(f"no TrainingJob or InferenceDeployment {name} in namespace {namespace}")
    return _explained(seen, found, output)


def _explained(seen: Snapshot, found: Sequence[WorkloadRecord], output: Output) -> None:
    if not output.for_people:
        sys.stdout.write(workloads_as(found, output))
        return
    for workload in found[:MOST_SHOWN]:
        console.print(tables.why(workload, isolation_of(seen, workload)))
        if workload.scaling is not None and workload.status.scaling is not None:
            console.print(scaling(workload.scaling, workload.status.scaling))
    if len(found) > MOST_SHOWN:
        console.print(f"and {len(found) - MOST_SHOWN} more")


def _why_pods(context: typer.Context, asked: str, namespace: str, output: Output) -> None:
    """Why pods of other controllers are where they are; those that wait come first."""
    word, _, name = asked.partition("/")
    kind = owners.WORDS.get(word.lower())
    if kind is None:
        _fail(f"{word} is none of {', '.join(owners.WORDS)}")
    seen = _answered(lambda: owners.look_for(_target(context), kind, namespace, name))
    found = sorted(workloads(seen), key=tables.is_placed)
    if not found:
        _fail(
            f"no pod of {kind} {name} in namespace {namespace} runs or waits for a device; does its"
            " template bear the label ullage.dev/share or ullage.dev/devices?"
        )
    _explained(seen, found, output)


@app.command()
def top(context: typer.Context, watch: Watch = False) -> None:
    """Every device and its tenants: share, phase, slowdown predicted and observed, risk used."""
    wanted = (GPU_NODES, PODS, *WORKLOADS)
    _shown(lambda: tables.top(_look(context, wanted), time.time()), watch)


@app.command()
def doctor(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of a node; all of them when absent.")] = "",
) -> None:
    """What each node needs and has, and what mends it; exit status 1 where a check failed."""
    found = _answered(lambda: nodes.examine(_target(context), node, time.time()))
    if node and not found:
        _fail(f"Ullage has no node {node}: kubectl label node {node} ullage.dev/node=true")
    console.print(nodes.table(found))
    if any(one.failed for one in found):
        raise typer.Exit(code=1)


@app.command()
def drain(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    undo: Annotated[bool, typer.Option(help="Let the node take work again.")] = False,
    wait: Annotated[bool, typer.Option(help="Until no slice is left.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait; exit status 1 when they are over.")
    ] = 600.0,
) -> None:
    """Move work that shares devices off a node: jobs save first, replicas are replaced first."""
    if not _asked(context, lambda api: draining.has_agent(api, node)):
        _fail(f"no GPUNode {node}; is its Node labelled ullage.dev/node=true?")
    changed = _asked(context, lambda api: draining.mark(api, node, drain=not undo))
    if undo:
        console.print(f"{node} takes work again" if changed else f"{node} was not draining")
        return
    end, told = time.monotonic() + timeout, ""
    while True:
        left = _asked(context, lambda api: draining.left_on(api, node))
        if (said := left.text(node)) != told:
            console.print(said, markup=False)
            told = said
        if not left.pods or not wait:
            return
        if time.monotonic() >= end:
            _fail(f"{node} is not empty after {timeout:g} s; it goes on draining")
        time.sleep(WATCH_S)


@app.command("support-bundle")
def support_bundle(
    context: typer.Context,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="The archive to write; it must not exist yet.")
    ] = Path("ullage-support.tar.gz"),
) -> None:
    """Write what decisions are made from into an archive, without environments and secrets."""
    from ullage.cli.support_bundle import write

    seen = _look(context, STREAMS)
    checked = _answered(lambda: nodes.examine(_target(context), "", time.time()))
    try:
        write(file, seen, nodes.table(checked))
    except OSError as error:
        _fail(f"{file}: {error.strerror or error}")
    console.print(f"wrote {file}", markup=False)


@app.command()
def cost(
    context: typer.Context,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    by: Annotated[costs.By, typer.Option(help="One line for each.")] = costs.By.JOB,
    plot: Annotated[str, typer.Option(help="A file to draw to (PNG), or `terminal`.")] = "",
    output: Annotated[
        costs.Output, typer.Option("--output", "-o", help="How it is told.")
    ] = costs.Output.TABLE,
) -> None:
    """What work cost, what on-demand would have taken, what was saved, what losses took."""
    namespaced = inside(WORKLOADS, _one_or_all(context, namespace, everywhere))
    seen = _allowed(context, [*namespaced, SCHEDULING_POLICIES], (SCHEDULING_POLICIES,))
    now = time.time()
    found = costs.lines(workloads(seen), by, now, seen.policy)
    if output is costs.Output.JSON:
        sys.stdout.write(costs.to_json(found, by, now))
    else:
        console.print(costs.table(found, by))
    told = problems if output is costs.Output.JSON else console
    if plot == costs.TERMINAL:
        told.print(costs.bars(found))
    elif plot:
        try:
            told.print(f"wrote {costs.picture(found, Path(plot))}", markup=False)
        except (OSError, RuntimeError) as error:
            _fail(str(error))


@app.command("tuning")
def show_tuning(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a TuningJob.")],
    namespace: Namespace = "",
    output: Annotated[
        tuning.Output, typer.Option("--output", "-o", help="Form of the answer.")
    ] = tuning.Output.TABLE,
    watch: Watch = False,
    plot: Annotated[
        str, typer.Option(help="A file to draw learning curves to (PNG), or `terminal`.")
    ] = "",
) -> None:
    """Trials of a search: parameters, epoch, value, share, state, and the best one so far."""
    if (watch or plot == costs.TERMINAL) and not output.for_people:
        _fail("--watch and --plot terminal go with tables only")
    namespace = _inside(context, namespace)
    if not output.for_people:
        sys.stdout.write(tuning.for_scripts(_search(context, namespace, name), output))
    else:

        def shown() -> RenderableType:
            found = _search(context, namespace, name)
            table = tables_tuning.search(found, time.time(), wide=output is tuning.Output.WIDE)
            return Group(table, tables_tuning.curves(found)) if plot == costs.TERMINAL else table

        _shown(shown, watch)
    if plot not in ("", costs.TERMINAL):
        told = console if output.for_people else problems
        try:
            path = tables_tuning.picture(_search(context, namespace, name), Path(plot))
        except (OSError, RuntimeError) as error:
            _fail(str(error))
        told.print(f"wrote {path}", markup=False)


def _search(context: typer.Context, namespace: str, name: str) -> tuning.TuningView:
    try:
        found = _asked(context, lambda api: tuning.look_for(api, namespace, name, time.time()))
    except WireError as error:
        _fail(f"TuningJob {name} cannot be read: {error}")
    if found is None:
        _fail(f"no TuningJob {name} in namespace {namespace}")
    return found


@app.command()
def explain(
    context: typer.Context,
    reason: Annotated[
        str,
        typer.Argument(
            help="A reason or condition, as it stands in a status; or `policy`: how the cluster's"
            " time is divided, and what each job had of its part."
        ),
    ],
) -> None:
    """What a reason or a condition means; or `policy`: promised against received time."""
    if reason.lower() == "policy":
        seen = _look(context, (TRAINING_JOBS, SCHEDULING_POLICIES, DEVICE_PROFILES, CAPACITY_POOLS))
        held = (
            _asked(context, quota_held) if any(one.quota for one in seen.policy.tenants) else None
        )
        console.print(tables_policy.policy(seen, time.time(), held))
        return
    said = tables.explanation(reason)
    if said is None:
        words = [item.value for item in Reason]
        near = difflib.get_close_matches(reason, words, n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        _fail(f"no reason or condition {reason!r}{hint}")
    console.print(said)


@app.command("recommend")
def recommend_accelerator(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a TrainingJob.")] = "",
    file: Annotated[
        typer.FileText | None,
        typer.Option("--file", "-f", help="A manifest instead; - = stdin."),
    ] = None,
    namespace: Namespace = "",
) -> None:
    """Which accelerator serves a job best: time, cost, bounds, and why others do not."""
    if bool(name) == (file is not None):
        _fail("give the name of a TrainingJob, or a manifest with -f")
    namespace = _inside(context, namespace)
    jobs = inside((TRAINING_JOBS,), namespace, name) if name else ()
    prices = (DEVICE_PROFILES, CAPACITY_POOLS)
    seen = _look(context, (GPU_NODES, *prices, WORKLOAD_PROFILES, *jobs))
    job: WorkloadRecord | None = next(iter(seen.workloads.values()), None)
    if file is not None:
        try:
            job = recommend.job_of(file.read(), namespace)
        except recommend.ManifestError as error:
            _fail(str(error))
    if job is None:
        _fail(f"no TrainingJob {name} in namespace {namespace}")
    console.print(recommend.recommendation(seen, job))


@profile.command("export")
def export_profile(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a WorkloadProfile.")],
    namespace: Namespace = "",
) -> None:
    """Print a profile with everything that was measured, as YAML that import takes."""
    namespace = _inside(context, namespace)
    seen = _look(context, inside((WORKLOAD_PROFILES,), namespace, name))
    found = seen.profiles.get((namespace, name))
    if found is None:
        _fail(f"no WorkloadProfile {name} in namespace {namespace}")
    sys.stdout.write(profiles.to_yaml(profiles.exported(found)))


@profile.command("import")
def import_profile(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name that the profile gets.")],
    file: Annotated[
        typer.FileBinaryRead,
        typer.Option("--file", "-f", help="What export printed, or a trace; - = stdin."),
    ],
    namespace: Namespace = "",
    unknown_accelerators: Annotated[
        bool, typer.Option(help="Take rows of devices that this cluster does not know.")
    ] = False,
    trace: Annotated[
        traces.TraceKind | None,
        typer.Option("--from", help="The file is a trace of this form (JSON, also gzipped)."),
    ] = None,
    workload_class: Annotated[
        str, typer.Option("--class", help="Class of work of the trace.")
    ] = "",
    accelerator: Annotated[
        str, typer.Option(help="Accelerator key of the device that the trace was taken on.")
    ] = "",
    family: Annotated[str, typer.Option(help="Model family of the class.")] = "",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps in the trace, where it marks none.")
    ] = None,
) -> None:
    """Create or replace a profile with the rows of a file, or complete one from a trace."""
    namespace = _inside(context, namespace)
    known = None if unknown_accelerators else _known_accelerators(context)
    data = file.read(traces.MOST_BYTES + 1)
    try:
        if trace is None:
            body = profiles.read(data.decode("utf-8", "replace"), name, namespace, known)
            done = _answered(lambda: save(_target(context), body))
        else:
            said = traces.Traced(
                kind=trace,
                workload_class=workload_class,
                accelerator=accelerator,
                family=family,
                steps=steps,
            )
            body, found = traces.profile_of(data, said, name, namespace, known)
            done = _answered(lambda: save(_target(context), body, traces.joined))
            console.print(traces.told(found))
    except profiles.ProfileError as error:
        _fail(str(error))
    console.print(f"workloadprofile {namespace}/{name} {done}")


def _target(context: typer.Context) -> Target:
    target: Target = context.obj
    return target


def _inside(context: typer.Context, stated: str) -> str:
    """The namespace that a command speaks of."""
    try:
        return _target(context).namespace_or(stated)
    except CredentialsError as error:
        _fail(str(error))


def _one_or_all(context: typer.Context, stated: str, everywhere: bool) -> str:
    """Namespace to read; "" = all namespaces."""
    if everywhere and (stated or _target(context).namespace):
        _fail("give a namespace with -n, or all of them with -A")
    return "" if everywhere else _inside(context, stated)


def _shown(render: Callable[[], RenderableType], watch: bool) -> None:
    """Print it once; or each time that it reads differently, until the user ends it."""
    before = ""
    while True:
        with console.capture() as printed:
            console.print(render())
        if printed.get() != before:
            if before and console.is_terminal:
                console.clear()
            before = printed.get()
            sys.stdout.write(before)
            sys.stdout.flush()
        if not watch:
            return
        time.sleep(WATCH_S)


_WITHOUT: Final = {
    PODS.kind.kind: "without pods that share devices by a label",
    SCHEDULING_POLICIES.kind.kind: "the tenant is the one that work names, else its namespace",
}


def _allowed(
    context: typer.Context, wanted: list[Stream], optional: Collection[Stream]
) -> Snapshot:
    """A look without what the user may not list and need not see; left out from now on."""
    seen, refused = _answered(lambda: look_as_allowed(_target(context), wanted, optional))
    for kind, message in refused.items():
        problems.print(f"{_WITHOUT[kind]}: {message}", markup=False)
    wanted[:] = [stream for stream in wanted if stream.kind.kind not in refused]
    return seen


def _known_accelerators(context: typer.Context) -> set[str] | None:
    """Accelerators of the cluster; ``None`` where the user may not list them."""

    async def looked() -> set[str] | None:
        try:
            return profiles.accelerators(await look(_target(context), (GPU_NODES, DEVICE_PROFILES)))
        except Forbidden as error:
            problems.print(f"accelerators are not checked: {error.message}")
            return None

    return _answered(looked)


def _look(context: typer.Context, wanted: Sequence[Stream]) -> Snapshot:
    return _answered(lambda: look(_target(context), wanted))


def _asked(
    context: typer.Context, ask: Callable[[ClusterPort], Coroutine[None, None, Answer]]
) -> Answer:
    async def asked() -> Answer:
        async with _target(context).connect() as api:
            return await ask(api)

    return _answered(asked)


def _answered(ask: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    try:
        return asyncio.run(ask())
    except NotFound:
        _fail("this cluster does not know Ullage's kinds: install the chart ullage-crds")
    except Forbidden as error:
        _fail(f"not allowed: {error.message}")
    except (ApiError, CredentialsError) as error:
        _fail(str(error))


def _fail(text: str) -> NoReturn:
    problems.print(f"error: {text}", style="red", markup=False)
    raise typer.Exit(code=1)


def run() -> None:
    """Entry point of ``ullage`` and ``kubectl-ullage``."""
    app()


if __name__ == "__main__":
    run()
