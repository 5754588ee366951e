# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage``: what runs, why something waits, who shares which device.

Reads only, but for ``profile import``, which writes one WorkloadProfile, ``drain``, which writes
one taint of a Node, and ``trace``, which creates one ProfileRequest. Each command imports what it
needs when it runs: the shell waits for every start of this program, also for completions and
``--help``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ullage.cli.forms import (
    PLOT,
    TERMINAL,
    CostBy,
    CostOutput,
    OutputFormat,
    TraceForm,
    TraceKind,
    TrialOutput,
)
from ullage.cli.job_or_command import JobOrCommand
from ullage.cli.plan_options import ChainOptions, DeviceOptions, ModelOptions, ProgramOptions
from ullage.cli.simulate_options import (
    Inputs,
    Lanes,
    Live,
    PlayOptions,
    Serving,
    SpotOptions,
    Tuning,
    takes,
)
from ullage.cli.simulate_options import OutputOptions as Told
from ullage.cli.target import ClusterTarget

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ullage.cli.explanation import Explanation
    from ullage.cli.tuning import TuningView
    from ullage.cluster.records.trace import ProfileRequestRecord
    from ullage.cluster.records.workload import WorkloadRecord

app = typer.Typer(
    name="kubectl ullage",
    help="What shares your GPUs, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
profile = typer.Typer(help="Carry what was learned of a class of work from cluster to cluster.")
app.add_typer(profile, name="profile", no_args_is_help=True)
trace = typer.Typer(
    cls=JobOrCommand,
    help="Trace the same few steps in the ranks of a running job, and say what takes their time.",
)
app.add_typer(trace, name="trace", no_args_is_help=True)

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; the context's when absent.")
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Form = Annotated[OutputFormat, typer.Option("--output", "-o", help="Form of the answer.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print it again when it changes.")]


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
        from importlib.metadata import version

        typer.echo(version("ullage"))
        raise typer.Exit
    path = kubeconfig or str(Path("~/.kube/config").expanduser())
    context.obj = ClusterTarget(kubeconfig=path, context=cluster_context, namespace=namespace)


@app.command()
def status(
    context: typer.Context,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    output: Form = OutputFormat.TABLE,
    watch: Watch = False,
) -> None:
    """Every workload in one line: phase, reason, place, share, predicted and observed slowdown."""
    import time

    from ullage.cli import access, tables
    from ullage.cli.look import WORKLOADS, inside, workloads
    from ullage.cli.output import workloads_as
    from ullage.cli.seen import with_pods
    from ullage.cluster.values.streams import GPU_NODES, PODS, SCHEDULING_POLICIES

    if watch and not output.for_people:
        access.fail("--watch prints tables only")
    wanted = list(inside((*WORKLOADS, PODS), access.one_or_all(context, namespace, everywhere)))
    pods, wide = wanted[-1], output is OutputFormat.WIDE
    wanted.append(GPU_NODES)
    optional = (pods, GPU_NODES, SCHEDULING_POLICIES)
    if not output.for_people:
        records = workloads(with_pods(access.allowed(context, wanted, optional)))
        typer.echo(workloads_as(records, output), nl=False)
        return
    if wide:
        wanted.append(SCHEDULING_POLICIES)

    def shown() -> RenderableType:
        seen = with_pods(access.allowed(context, wanted, optional))
        return tables.overview(workloads(seen), time.time(), wide=wide, policy=seen.policy)

    access.shown(shown, watch)


@app.command()
def why(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a TrainingJob or InferenceDeployment; or tj/NAME, infd/NAME, tune/NAME"
            " of one kind; or pod/NAME, deploy/NAME, job/NAME, … of pods that share devices by a"
            " label."
        ),
    ],
    namespace: Namespace = "",
    output: Form = OutputFormat.TABLE,
    with_efficiency: Annotated[
        bool,
        typer.Option("--efficiency", help="Say instead which device time is not used, and why."),
    ] = False,
) -> None:
    """Say why a workload is where it is, or waits; what binds, by how much, and what would help."""
    from ullage.cli import access, explanation
    from ullage.cli.kinds import WORDS, split
    from ullage.cli.look import WORKLOADS

    if with_efficiency:
        _why_inefficient(context, name, namespace)
        return

    namespace = access.namespace_of(context, namespace)
    word, bare = split(name)
    kind = WORDS.get(word, "")
    if kind == "TuningJob":
        _why_search(context, bare, namespace, output)
        return
    streams = [stream for stream in WORKLOADS if kind in ("", stream.kind.kind)]
    if not streams or (word and not kind):
        _why_pods(context, word, bare, namespace, output)
        return
    bare = access.name_of(bare)
    view = access.asked(
        context,
        lambda api: explanation.of_workloads(
            api, streams, namespace, bare, details=output.for_people
        ),
    )
    access.say_left_out(view.refused)
    if not view.records:
        kinds = " or ".join(stream.kind.kind for stream in streams)
        access.fail(f"no {kinds} {bare} in namespace {namespace}")
    _explained(view, output)


def _why_inefficient(context: typer.Context, name: str, namespace: str) -> None:
    """Say which device time of a workload, or of pods by a label, is not used, and why."""
    import time

    from ullage.cli import access
    from ullage.cli import efficiency as shown
    from ullage.cli.kinds import WORDS, split
    from ullage.cli.look import WORKLOADS, inside, workloads
    from ullage.cluster.values.streams import GPU_NODES, PODS, PROFILE_REQUESTS, SCHEDULING_POLICIES

    word, bare = split(name)
    bare = access.name_of(bare)
    where = access.namespace_of(context, namespace)
    optional = (GPU_NODES, SCHEDULING_POLICIES, *inside((PROFILE_REQUESTS,), where))
    wanted = [*inside((*WORKLOADS, PODS), where), *optional]
    seen = access.allowed(context, wanted, optional)
    kinds = (WORDS[word],) if word in WORDS else ("Pod",) if word else ()
    records = [
        record
        for record in workloads(seen)
        if record.ref.name == bare and (not kinds or record.kind.value in kinds)
    ]
    if not records:
        access.fail(f"no workload {name} with device time is known in this namespace")
    access.console.print(shown.explained(shown.FleetEfficiency(seen, records, time.time())))


def _why_search(context: typer.Context, name: str, namespace: str, output: OutputFormat) -> None:
    """Say where a search stands; its trials are TrainingJobs that can be asked for themselves."""
    import time

    from ullage.cli import access, tables_tuning, tuning

    view = _search(context, namespace, access.name_of(name))
    if output is OutputFormat.NAME:
        typer.echo(f"tuningjob/{view.record.ref.name}")
    elif output.for_people:
        wide = output is OutputFormat.WIDE
        access.console.print(tables_tuning.search(view, time.time(), wide=wide))
    else:
        typer.echo(tuning.for_scripts(view, TrialOutput(output)), nl=False)


def _explained(view: Explanation, output: OutputFormat) -> None:
    import time

    from ullage.cli import access, explanation, ranks, tables, trace_requests
    from ullage.cli.look import isolation_of
    from ullage.cli.output import workloads_as
    from ullage.cli.seen import ends
    from ullage.cli.tables_scaling import scaling

    seen, records, most = view.seen, view.records, explanation.MOST_SHOWN
    if not output.for_people:
        typer.echo(workloads_as(records, output), nl=False)
        return
    for workload in records[:most]:
        access.console.print(
            tables.why(workload, isolation_of(seen, workload), tuple(ends(seen, workload)))
        )
        if workload.scaling is not None and workload.status.scaling is not None:
            access.console.print(scaling(workload.scaling, workload.status.scaling))
        if timed := view.ranks.get(workload.ref.uid):
            access.console.print(ranks.table(timed))
        for line in view.volumes.get(workload.ref.uid, ()):
            access.console.print(line)
    if len(records) > most:
        access.console.print(f"and {len(records) - most} more")
    if view.predecessors:
        waits = records[0].ref.name
        access.console.print(tables.behind_predecessors(waits, view.predecessors))
    if view.last_trace is not None:
        access.console.print(trace_requests.last_line(view.last_trace, time.time()))


def _why_pods(
    context: typer.Context, word: str, name: str, namespace: str, output: OutputFormat
) -> None:
    """Say why pods of other controllers are where they are; those that wait come first."""
    from ullage.cli import access, explanation, owners
    from ullage.cli.kinds import words_of

    kind = owners.WORDS.get(word)
    if kind is None:
        words = (
            *(
                word
                for of in ("TrainingJob", "InferenceDeployment", "TuningJob")
                for word in words_of(of)
            ),
            *owners.WORDS,
        )
        access.fail(f"{word} is none of {', '.join(words)}")
    name = access.name_of(name)
    view = access.asked(
        context,
        lambda api: explanation.of_owner(api, kind, namespace, name, details=output.for_people),
    )
    if not view.records:
        access.fail(
            f"no pod of {kind} {name} in namespace {namespace} asks for a device; does its"
            " template bear the label ullage.dev/share or ullage.dev/devices?"
        )
    _explained(view, output)


@app.command()
def top(context: typer.Context, watch: Watch = False) -> None:
    """Every device and its tenants: share, phase, slowdown predicted and observed, risk used."""
    import time

    from ullage.cli import access, tables
    from ullage.cli.look import WORKLOADS
    from ullage.cli.seen import with_pods
    from ullage.cluster.values.streams import GPU_NODES, PODS

    wanted = (GPU_NODES, PODS, *WORKLOADS)
    access.shown(lambda: tables.top(with_pods(access.look_at(context, wanted)), time.time()), watch)


@app.command()
def doctor(
    context: typer.Context,
    node: Annotated[
        str, typer.Argument(help="Name of a node, also node/NAME or gn/NAME; all when absent.")
    ] = "",
) -> None:
    """Print what each node needs and has, and how to fix it; exit status 1 where a check failed."""
    import time

    from ullage.cli import access
    from ullage.cli import doctor as nodes

    node = access.name_of(node, "GPUNode", "Node") if node else ""
    results = access.answered(lambda: nodes.examine(access.target_of(context), node, time.time()))
    if node and not results:
        access.fail(f"Ullage has no node {node}: kubectl label node {node} ullage.dev/node=true")
    access.console.print(nodes.table(results))
    if any(result.failed for result in results):
        raise typer.Exit(code=1)


@app.command()
def drain(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node, also node/NAME or gn/NAME.")],
    undo: Annotated[bool, typer.Option(help="Let the node take work again.")] = False,
    wait: Annotated[bool, typer.Option(help="Until no slice is left.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait; exit status 1 when they are over.")
    ] = 600.0,
) -> None:
    """Move work that shares devices off a node: jobs save first, replicas are replaced first."""
    import time

    from ullage.cli import access
    from ullage.cli import drain as draining

    node = access.name_of(node, "GPUNode", "Node")
    if not access.asked(context, lambda api: draining.has_agent(api, node)):
        access.fail(f"no GPUNode {node}; is its Node labelled ullage.dev/node=true?")
    changed = access.asked(context, lambda api: draining.mark(api, node, drain=not undo))
    if undo:
        access.console.print(f"{node} takes work again" if changed else f"{node} was not draining")
        return
    end, shown = time.monotonic() + timeout, ""
    while True:
        left = access.asked(context, lambda api: draining.left_on(api, node))
        if (message := left.text(node)) != shown:
            access.console.print(message, markup=False)
            shown = message
        if not left.pods or not wait:
            return
        if time.monotonic() >= end:
            access.fail(f"{node} is not empty after {timeout:g} s; it goes on draining")
        time.sleep(access.WATCH_S)


@app.command("support-bundle")
def support_bundle(
    context: typer.Context,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="The archive to write; it must not exist yet.")
    ] = Path("ullage-support.tar.gz"),
) -> None:
    """Write what decisions are made from into an archive, without environments and secrets."""
    import time

    from ullage.cli import access
    from ullage.cli import doctor as nodes
    from ullage.cli.support_bundle import write
    from ullage.cluster.values.streams import STREAMS

    seen = access.look_at(context, STREAMS)
    checked = access.answered(lambda: nodes.examine(access.target_of(context), "", time.time()))
    try:
        write(file, seen, nodes.table(checked))
    except OSError as error:
        access.fail(f"{file}: {error.strerror or error}")
    access.console.print(f"wrote {file}", markup=False)


@app.command()
def cost(
    context: typer.Context,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    by: Annotated[CostBy, typer.Option(help="One line for each.")] = CostBy.JOB,
    plot: Annotated[str, typer.Option(help=PLOT)] = "",
    output: Annotated[
        CostOutput, typer.Option("--output", "-o", help="Form of the answer.")
    ] = CostOutput.TABLE,
) -> None:
    """Print what work cost, what on-demand would have taken, what was saved, what losses took."""
    import time

    from ullage.cli import access
    from ullage.cli import cost as costs
    from ullage.cli.look import WORKLOADS, inside, workloads
    from ullage.cluster.values.streams import SCHEDULING_POLICIES

    namespaced = inside(WORKLOADS, access.one_or_all(context, namespace, everywhere))
    seen = access.allowed(context, [*namespaced, SCHEDULING_POLICIES], (SCHEDULING_POLICIES,))
    now = time.time()
    entries = costs.lines(workloads(seen), by, now, seen.policy)
    if output is CostOutput.JSON:
        typer.echo(costs.to_json(entries, by, now), nl=False)
    else:
        access.console.print(costs.table(entries, by))
    console = access.problems if output is CostOutput.JSON else access.console
    if plot == TERMINAL:
        console.print(costs.bars(entries))
    elif plot:
        try:
            console.print(f"wrote {costs.picture(entries, Path(plot))}", markup=False)
        except (OSError, RuntimeError) as error:
            access.fail(str(error))


@app.command()
def efficiency(
    context: typer.Context,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    top: Annotated[
        int, typer.Option(min=1, max=1000, help="Opportunities and workloads to show.")
    ] = 10,
    output: Annotated[
        CostOutput, typer.Option("--output", "-o", help="Form of the answer.")
    ] = CostOutput.TABLE,
) -> None:
    """Print device time that was held and not used, what it cost, why, and what helps."""
    import time

    from ullage.cli import access
    from ullage.cli import efficiency as shown
    from ullage.cli.look import WORKLOADS, inside, workloads
    from ullage.cluster.values.streams import GPU_NODES, PODS, PROFILE_REQUESTS, SCHEDULING_POLICIES

    where = access.one_or_all(context, namespace, everywhere)
    optional = (*inside((PODS, PROFILE_REQUESTS), where), GPU_NODES, SCHEDULING_POLICIES)
    seen = access.allowed(context, [*inside(WORKLOADS, where), *optional], optional)
    fleet = shown.FleetEfficiency(seen, workloads(seen), time.time())
    if output is CostOutput.JSON:
        typer.echo(shown.to_json(fleet, top), nl=False)
    else:
        access.console.print(shown.table(fleet, top))


@app.command("tuning")
def show_tuning(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a TuningJob, also tune/NAME.")],
    namespace: Namespace = "",
    output: Annotated[
        TrialOutput, typer.Option("--output", "-o", help="Form of the answer.")
    ] = TrialOutput.TABLE,
    watch: Watch = False,
    plot: Annotated[str, typer.Option(help=PLOT)] = "",
) -> None:
    """Trials of a search: parameters, epoch, value, share, state, and the best one so far."""
    import time

    from rich.console import Group

    from ullage.cli import access, tables_tuning, tuning

    if (watch or plot == TERMINAL) and not output.for_people:
        access.fail("--watch and --plot terminal go with tables only")
    namespace, name = access.namespace_of(context, namespace), access.name_of(name, "TuningJob")
    if not output.for_people:
        typer.echo(tuning.for_scripts(_search(context, namespace, name), output), nl=False)
    else:

        def shown() -> RenderableType:
            view = _search(context, namespace, name)
            table = tables_tuning.search(view, time.time(), wide=output is TrialOutput.WIDE)
            return Group(table, tables_tuning.curves(view)) if plot == TERMINAL else table

        access.shown(shown, watch)
    if plot not in ("", TERMINAL):
        console = access.console if output.for_people else access.problems
        try:
            path = tables_tuning.picture(_search(context, namespace, name), Path(plot))
        except (OSError, RuntimeError) as error:
            access.fail(str(error))
        console.print(f"wrote {path}", markup=False)


def _search(context: typer.Context, namespace: str, name: str) -> TuningView:
    import time

    from ullage.api.readers import WireError
    from ullage.cli import access, tuning

    try:
        view = access.asked(context, lambda api: tuning.look_for(api, namespace, name, time.time()))
    except WireError as error:
        access.fail(f"TuningJob {name} cannot be read: {error}")
    if view is None:
        access.fail(f"no TuningJob {name} in namespace {namespace}")
    return view


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
    """Explain a reason or a condition; or `policy`: promised against received time."""
    from ullage.cli import printing

    if reason.lower() == "policy":
        return _divided(context)
    try:
        printing.console.print(printing.explanation(reason))
    except ValueError as error:
        printing.fail(str(error))


def _divided(context: typer.Context) -> None:
    """Print how the cluster's time is divided."""
    import time

    from ullage.cli import access, tables_policy
    from ullage.cli.look import quota_held
    from ullage.cluster.values.streams import (
        CAPACITY_POOLS,
        DEVICE_PROFILES,
        SCHEDULING_POLICIES,
        TRAINING_JOBS,
    )

    wanted = (TRAINING_JOBS, SCHEDULING_POLICIES, DEVICE_PROFILES, CAPACITY_POOLS)
    seen = access.look_at(context, wanted)
    has_quota = any(tenant.quota for tenant in seen.policy.tenants)
    held = access.asked(context, quota_held) if has_quota else None
    access.console.print(tables_policy.policy(seen, time.time(), held))


@app.command("recommend")
def recommend_accelerator(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a TrainingJob, also tj/NAME.")] = "",
    file: Annotated[
        typer.FileText | None,
        typer.Option("--file", "-f", help="A manifest instead; - = stdin."),
    ] = None,
    namespace: Namespace = "",
) -> None:
    """Say which accelerator serves a job best: time, cost, bounds, and why others do not."""
    from ullage.cli import access, recommend
    from ullage.cli.look import inside
    from ullage.cluster.values.streams import (
        CAPACITY_POOLS,
        DEVICE_PROFILES,
        GPU_NODES,
        TRAINING_JOBS,
        WORKLOAD_PROFILES,
    )

    if bool(name) == (file is not None):
        access.fail("give the name of a TrainingJob, or a manifest with -f")
    namespace = access.namespace_of(context, namespace)
    name = access.name_of(name, "TrainingJob") if name else ""
    jobs = inside((TRAINING_JOBS,), namespace, name) if name else ()
    prices = (DEVICE_PROFILES, CAPACITY_POOLS)
    seen = access.look_at(context, (GPU_NODES, *prices, WORKLOAD_PROFILES, *jobs))
    job: WorkloadRecord | None = next(iter(seen.workloads.values()), None)
    if file is not None:
        try:
            job = recommend.job_of(file.read(), namespace)
        except recommend.ManifestError as error:
            access.fail(str(error))
    if job is None:
        access.fail(f"no TrainingJob {name} in namespace {namespace}")
    access.console.print(recommend.recommendation(seen, job))


@app.command()
@takes(ModelOptions, ChainOptions, DeviceOptions, ProgramOptions)
def plan(
    context: typer.Context,
    output: Annotated[
        CostOutput, typer.Option("--output", "-o", help="Form of the answer.")
    ] = CostOutput.TABLE,
    **given: object,
) -> None:
    """Spread a model that outgrows a device over several, with the arguments of its program."""
    from ullage.cli.plan import answered

    answered(context, given, output)


@profile.command("export")
def export_profile(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a WorkloadProfile, also wp/NAME.")],
    namespace: Namespace = "",
) -> None:
    """Print a profile with everything that was measured, as YAML that import takes."""
    from ullage.cli import access, profiles
    from ullage.cli.look import inside
    from ullage.cluster.values.streams import WORKLOAD_PROFILES

    namespace, name = (
        access.namespace_of(context, namespace),
        access.name_of(name, "WorkloadProfile"),
    )
    seen = access.look_at(context, inside((WORKLOAD_PROFILES,), namespace, name))
    measured = seen.profiles.get((namespace, name))
    if measured is None:
        access.fail(f"no WorkloadProfile {name} in namespace {namespace}")
    typer.echo(profiles.to_yaml(profiles.exported(measured)), nl=False)


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
        TraceKind | None,
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
    from ullage.cli import access, profiles, traces
    from ullage.cli.look import save

    namespace = access.namespace_of(context, namespace)
    known = None if unknown_accelerators else access.known_accelerators(context)
    data = file.read(traces.MOST_BYTES + 1)
    try:
        if trace is None:
            body = profiles.read(data.decode("utf-8", "replace"), name, namespace, known)
            done = access.answered(lambda: save(access.target_of(context), body))
        else:
            traced = traces.Traced(
                kind=trace,
                workload_class=workload_class,
                accelerator=accelerator,
                family=family,
                steps=steps,
            )
            body, trace_read = traces.profile_of(data, traced, name, namespace, known)
            done = access.answered(lambda: save(access.target_of(context), body, traces.joined))
            access.console.print(traces.summary(trace_read))
    except profiles.ProfileError as error:
        access.fail(str(error))
    access.console.print(f"workloadprofile {namespace}/{name} {done}")


@trace.command("job")
def trace_job(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            help="Name of a TrainingJob; or job/NAME, jobset/NAME, pytorchjob/NAME, trainjob/NAME."
        ),
    ],
    namespace: Namespace = "",
    steps: Annotated[int, typer.Option(min=1, max=50, help="Number of steps.")] = 5,
    ranks: Annotated[
        str, typer.Option(help="Sample (up to four pods), All, or ranks such as 0,3.")
    ] = "Sample",
    stacks: Annotated[bool, typer.Option(help="Record Python stacks.")] = False,
    shapes: Annotated[bool, typer.Option(help="Record the shapes of inputs.")] = False,
    wait: Annotated[bool, typer.Option(help="Until the trace is done.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait; exit status 1 when they are over.")
    ] = 900.0,
) -> None:
    """Trace steps of a running job; the word `job` may be left out: trace JOB --steps 5."""
    import time

    from ullage.cli import access, trace_requests
    from ullage.cli.times import TRACE_LOOK_S

    namespace = access.namespace_of(context, namespace)
    terms = trace_requests.TraceTerms(steps=steps, ranks=ranks, stacks=stacks, shapes=shapes)
    try:
        body = trace_requests.request_body(job, namespace, terms)
    except trace_requests.TraceError as error:
        access.fail(str(error))
    name = access.asked(context, lambda api: trace_requests.created(api, body))
    access.problems.print(f"profilerequest {namespace}/{name} created", markup=False)
    end, shown = time.monotonic() + timeout, ""
    while wait:
        request = _trace_request(context, namespace, name)
        status = request.status
        if status.is_over:
            access.console.print(trace_requests.shown(request))
            if status.phase == "Failed":
                raise typer.Exit(code=1)
            return
        if status.message and status.message != shown:
            shown = status.message
            access.problems.print(trace_requests.progress(request))
        if time.monotonic() >= end:
            access.fail(f"{name} is not done after {timeout:g} s; it goes on")
        time.sleep(TRACE_LOOK_S)


@trace.command("get")
def get_trace(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a ProfileRequest.")],
    namespace: Namespace = "",
    output: Annotated[
        TraceForm,
        typer.Option(
            "--output", "-o", help="Form of the answer; perfetto = the traces, from their pods."
        ),
    ] = TraceForm.TABLE,
    rank: Annotated[int | None, typer.Option(min=0, help="The trace of this rank alone.")] = None,
    folder: Annotated[
        Path, typer.Option(help="Where traces are written, one file for each rank.")
    ] = Path("."),
) -> None:
    """Print what a trace showed, or fetch the traces of its ranks from their pods."""
    from ullage.cli import access, trace_requests

    namespace = access.namespace_of(context, namespace)
    request = _trace_request(context, namespace, name)
    if output is TraceForm.TABLE:
        access.console.print(trace_requests.shown(request))
        return
    if output is not TraceForm.PERFETTO:
        typer.echo(trace_requests.for_scripts(request, output), nl=False)
        return
    target = access.target_of(context)
    try:
        for capture in trace_requests.files_of(request, rank):
            container = access.asked(
                context,
                partial(trace_requests.container_of, namespace=namespace, pod=capture.pod),
            )
            file = folder / f"{name}-rank-{capture.rank}.json.gz"
            size = trace_requests.read_trace(target, request, capture, container, file)
            access.console.print(f"wrote {file} ({size:,} bytes)", markup=False)
    except trace_requests.TraceError as error:
        access.fail(str(error))
    except OSError as error:
        access.fail(f"{folder}: {error.strerror or error}")
    access.problems.print("open them with https://ui.perfetto.dev")


@trace.command("show")
def show_traces(
    files: Annotated[
        list[Path],
        typer.Argument(help="Traces of PyTorch's profiler, one for each rank; plain or gzip."),
    ],
    output: Annotated[
        TraceForm,
        typer.Option(
            "--output", "-o", help="Form of the answer; perfetto = the ranks on one time line."
        ),
    ] = TraceForm.TABLE,
    one_clock: Annotated[
        bool, typer.Option("--one-node", help="The ranks ran on one node, so on one clock.")
    ] = False,
) -> None:
    """Say what takes the time of the steps in trace files, without a cluster."""
    from ullage.cli import printing, trace_files

    try:
        answer = trace_files.shown(trace_files.read_files(files), output, one_clock=one_clock)
    except trace_files.TraceFileError as error:
        printing.fail(str(error))
    if isinstance(answer, str):
        typer.echo(answer, nl=False)
    else:
        printing.console.print(answer)


def _trace_request(context: typer.Context, namespace: str, name: str) -> ProfileRequestRecord:
    from ullage.cli import access, trace_requests

    try:
        return access.asked(context, lambda api: trace_requests.look_for(api, namespace, name))
    except trace_requests.TraceError as error:
        access.fail(str(error))


@app.command()
@takes(Inputs, PlayOptions, SpotOptions, Serving, Lanes, Tuning, Live, Told)
def simulate(context: typer.Context, **given: object) -> None:
    """Try policies on a trace, or on the jobs of this cluster, before switching one on."""
    from ullage.cli.simulate import answered

    answered(context.obj, given)


def run() -> None:
    """Entry point of ``ullage`` and ``kubectl-ullage``."""
    app()


if __name__ == "__main__":
    run()
