# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The replay twin over toy tables whose figures can be worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench.twin import DEVICES, RULES, Score, figures
from bench.twin_cluster import Cluster, Job, Rule, Tally
from bench.twin_data import TABLE, JobClass, Serving, Tables, load
from bench.twin_models import blind, truth
from ullage.cluster.records.workload import WorkloadKind
from ullage.engines.admission.queue_map import Load, Service

HOURS, GPUS = 0.5, 2
WINDOWS = HOURS * 720 * GPUS
SMALL, LARGE = (JobClass(name=name, family=name, acts_as=name, step_s=0.1) for name in "sl")
WEB = JobClass(
    name="web",
    family="web",
    acts_as="s",
    step_s=0.01,
    serving=Serving(
        service=Service(mean_s=0.01, quantile_s=0.046),
        load=Load(requests_per_s=40.0),
        latency_ms=532,  # a little more than a slowdown of 2 gives
    ),
)
BAD = 3.0
TABLES = Tables(
    "toy",
    (SMALL, LARGE, WEB),
    {
        ("s", "s"): (1.25, 1.25),
        ("l", "l"): (BAD, BAD),
        ("s", "l"): (BAD, 1.1),
        ("l", "s"): (1.1, BAD),
    },
)


def arrivals(kinds: Sequence[JobClass], work_s: float) -> Iterator[Job]:
    for number, kind in enumerate(itertools.cycle(kinds)):
        yield Job(f"{number:04d}", kind, work_s)


def cluster(rule: Rule, *kinds: JobClass, seed: int = 1, work_s: float = 600.0) -> Cluster:
    return Cluster(TABLES, rule, arrivals(kinds, work_s), gpus=GPUS, seed=seed)


def played(rule: Rule, *kinds: JobClass, seed: int = 1) -> Tally:
    return cluster(rule, *kinds, seed=seed).run(HOURS)


UNCONTROLLED = Rule(model=blind(TABLES), agents=False)


def test_a_device_of_its_own_gives_one() -> None:
    tally = played(Rule(shares=False, agents=False), SMALL, LARGE)
    assert tally.goodput / WINDOWS == pytest.approx(1.0, rel=0.01)
    assert (tally.violations, tally.shared_windows) == (0, 0)
    assert tally.finished == GPUS * (HOURS * 6 - 1)


def test_a_good_pair_gives_what_its_row_says() -> None:
    tally = played(UNCONTROLLED, SMALL)
    assert tally.goodput / WINDOWS == pytest.approx(2 / 1.25, rel=0.02)
    assert tally.violations == 0
    assert tally.windows == pytest.approx(2 * WINDOWS, rel=0.01)


def test_windows_above_the_objective_earn_nothing() -> None:
    tally = played(UNCONTROLLED, LARGE)
    assert tally.violations == tally.shared_windows == tally.windows
    assert tally.goodput == 0


def test_work_that_asks_for_a_whole_device_gets_one() -> None:
    whole = JobClass(name="l", family="l", acts_as="l", step_s=0.1, whole=True)
    assert played(UNCONTROLLED, whole).shared_windows == 0


def test_who_knows_the_truth_shares_what_is_good_and_nothing_else() -> None:
    tally = played(Rule(model=truth(TABLES)), SMALL, LARGE)
    assert tally.violations == 0
    assert tally.shared_windows > 0


def test_a_trial_that_breaks_an_objective_ends_and_teaches() -> None:
    twin = cluster(Rule(learns=True), LARGE)
    tally = twin.run(HOURS)
    assert 0 < tally.trial_windows < 0.1 * tally.windows
    assert tally.evictions > 0
    rows = [row for one in twin.world.profiles.values() for row in one.status.step_time]
    beside = [row.slowdown for row in rows if row.partners]
    assert beside
    assert min(one for one in beside if one) == pytest.approx(BAD, rel=0.1)


def test_what_rows_taught_is_in_the_model_that_decides() -> None:
    twin = cluster(Rule(learns=True), SMALL)
    twin.run(HOURS)
    assert twin.models["toy"].rows > 0


def test_a_server_keeps_its_latency_and_its_user_deletes_it() -> None:
    twin = cluster(Rule(model=truth(TABLES)), WEB)
    tally = twin.run(HOURS)
    assert tally.finished > 0
    assert tally.violations == 0
    kinds = {job.kind for job in twin.world.workloads.values()}
    assert kinds == {WorkloadKind.INFERENCE_DEPLOYMENT}
    owners = {one.owner_uid for one in twin.world.base.deployments.values()}
    assert owners <= twin.world.workloads.keys()


def test_the_same_seed_gives_the_same_figures_and_another_does_not() -> None:
    first, again, other = (
        cluster(UNCONTROLLED, SMALL, LARGE, seed=seed).run(0.1) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_file_says_goodput_over_exclusive_devices_and_who_was_within_its_objective() -> None:
    ours = Tally(windows=190, violations=2, trial_windows=10, trial_violations=4, goodput=120.0)
    plain = Tally(windows=100, goodput=80.0)
    scores = {
        device: {
            name: Score(
                tally=ours if name == "ours" else plain, windows=100, certified={}, seconds=1
            )
            for name in RULES
        }
        for device in DEVICES
    }
    found = figures(scores)
    for device in ("v100", "p100", "k80"):
        assert found[f"goodput_{device}"] == 1.5
        assert found[f"attainment_{device}"] == pytest.approx(1 - 2 / 190, abs=1e-5)
        assert found[f"attainment_with_trials_{device}"] == pytest.approx(0.97)
        assert found[f"goodput_{device}_oracle"] == 1.0


HEAD = "source_file,gpu,placement,scale_factor"
ROW = f"{TABLE},toy,consolidated,1"


def written(folder: Path, *pairs: str) -> Path:
    (folder / "gavel").mkdir()
    (folder / "interference").mkdir()
    names = ["A (batch size 1)", "A (batch size 2)", "A (batch size 64)", "B"]
    names += ["ResNet-50 (batch size 16)", "ResNet-50 (batch size 32)", "ResNet-50 (batch size 64)"]
    names += ["ResNet-18 (batch size 16)", "ResNet-18 (batch size 64)"]
    solo = [f"{HEAD},job_type,steps_per_s", *(f"{ROW},{name},10" for name in names)]
    (folder / "gavel" / "throughputs_solo.csv").write_text("\n".join(solo))
    apart = [f"{ROW},{one},{two},0,0" for one, two in itertools.product(names[4:], names)]
    both = [f"{HEAD},job_a,job_b,a_steps_per_s,b_steps_per_s", *(f"{ROW},{one}" for one in pairs)]
    (folder / "gavel" / "throughputs_colocated.csv").write_text("\n".join(both + apart))
    served = ["model,mig_gpcs,batch,processes,latency_s"]
    models = ("resnet50", "resnet101", "resnet152", "mobilenetv2", "densenet121")
    served += [f"{model},7,1,1,0.004" for model in models]
    file = folder / "interference" / "parvagpu_a100_mig_mps_inference.csv"
    file.write_text("\n".join(served))
    return folder


MEASURED = (
    "A (batch size 1),B,5,8",
    "A (batch size 64),B,2,4",
    "A (batch size 1),A (batch size 1),5,5",
    "B,B,4,4",
)


def test_an_unmeasured_pair_is_as_the_nearest_batch_size(tmp_path: Path) -> None:
    tables = load(written(tmp_path, *MEASURED), "toy")
    assert tables.pairs["A (batch size 2)", "B"] == pytest.approx((2.0, 1.25))
    assert tables.pairs["B", "A (batch size 64)"] == pytest.approx((2.5, 5.0))
    assert tables.measured == pytest.approx(6 / 16)


def test_work_that_fits_beside_no_one_is_alone(tmp_path: Path) -> None:
    tables = load(written(tmp_path, *MEASURED), "toy")
    alone = {one.name for one in tables.classes if one.whole and one.serving is None}
    assert alone == {one.name for one in tables.classes if one.name.startswith("ResNet")}
    assert all(one.whole for one in tables.classes if one.serving is not None)
    limits = [one.allowed for one in tables.classes if one.serving is not None]
    assert all(math.isclose(one, 2.0, rel_tol=0.01) for one in limits)


def test_two_models_that_were_never_together_are_no_pair(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="A and B"):
        load(written(tmp_path, *MEASURED[2:]), "toy")
