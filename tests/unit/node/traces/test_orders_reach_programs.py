# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ullage.api.captures import CaptureRefusal
from ullage_node.traces.collect import TEXT_MOST, collect
from ullage_node.traces.folder import ENTRIES_MOST
from ullage_node.traces.orders import TraceOrder, place, withdraw

ORDER = TraceOrder(id="uid-1", start_step=1200, steps=5, ranks=(0, 3))


@pytest.fixture
def steps_dir(tmp_path: Path) -> Path:
    """Directory of a container's records, as the agent makes it."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "armed").write_bytes(bytes(8))
    return tmp_path


def word(steps_dir: Path) -> bytes:
    return (steps_dir / "trace" / "armed").read_bytes()


def answer(steps_dir: Path, name: str, content: str) -> Path:
    path = steps_dir / "trace" / name
    path.write_text(content)
    return path


def refusal(reason: str, text: object = "why") -> str:
    return json.dumps({"reason": reason, "text": text})


def test_an_order_is_whole_and_then_the_word_changes(steps_dir: Path) -> None:
    place(steps_dir, ORDER)
    assert json.loads((steps_dir / "trace" / "order").read_bytes()) == {
        "id": "uid-1",
        "startStep": 1200,
        "steps": 5,
        "stacks": False,
        "shapes": False,
        "ranks": [0, 3],
    }
    first = word(steps_dir)
    assert first != bytes(8)
    place(steps_dir, TraceOrder(id="uid-2", start_step=1, steps=1))
    assert word(steps_dir) != first
    assert sorted(os.listdir(steps_dir / "trace")) == ["armed", "order"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "../../etc"},
        {"id": ""},
        {"id": "x" * 64},
        {"start_step": -1},
        {"start_step": 1 << 63},
        {"steps": 0},
        {"steps": 51},
        {"ranks": tuple(range(1000))},
    ],
)
def test_an_order_that_programs_would_not_read_is_refused(wrong: dict[str, object]) -> None:
    stated: dict[str, object] = {"id": "uid-1", "start_step": 1, "steps": 1, **wrong}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TraceOrder(**stated)  # type: ignore[arg-type]


def test_a_container_from_before_orders_has_no_place_for_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        place(tmp_path, ORDER)
    withdraw(tmp_path, "uid-1")


def test_answers_come_by_rank(steps_dir: Path) -> None:
    place(steps_dir, ORDER)
    assert collect(steps_dir, "uid-1") == ()
    path = answer(steps_dir, "uid-1-10.json.gz", "trace")
    answer(steps_dir, "uid-1-2.refused", refusal("Late", "at step 1300"))
    answer(steps_dir, "uid-1-3.json.gz.tmp", "half")
    answer(steps_dir, "uid-2-4.json.gz", "of another order")
    late, traced = collect(steps_dir, "uid-1")
    assert (late.rank, late.path, late.reason, late.text) == (
        2,
        None,
        CaptureRefusal.LATE,
        "at step 1300",
    )
    assert (traced.rank, traced.path, traced.bytes, traced.reason) == (10, path, 5, None)


def test_a_trace_counts_more_than_a_refusal_beside_it(steps_dir: Path) -> None:
    answer(steps_dir, "uid-1-0.json.gz", "trace")
    answer(steps_dir, "uid-1-0.refused", refusal("Late"))
    assert [found.reason for found in collect(steps_dir, "uid-1")] == [None]


@pytest.mark.parametrize(
    "name", ["uid-1-16.json.gz", "uid-1-00.json.gz", "uid-1--1.json.gz", "uid-1-1.json.gz\n"]
)
def test_names_that_no_rank_writes_are_ignored(steps_dir: Path, name: str) -> None:
    answer(steps_dir, name, "trace")
    assert collect(steps_dir, "uid-1") == ()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"reason": "Late"}',
        refusal("Bored"),
        "x" * 513,
        "[" * 500,
        '{"reason": {}, "text": 1}',
    ],
)
def test_a_refusal_that_cannot_be_read_is_one_all_the_same(steps_dir: Path, content: str) -> None:
    answer(steps_dir, "uid-1-0.refused", content)
    (found,) = collect(steps_dir, "uid-1")
    assert found.reason is CaptureRefusal.FAILED
    assert "cannot be read" in found.text
    assert len(found.text) <= TEXT_MOST


def test_the_text_of_a_refusal_is_one_short_line(steps_dir: Path) -> None:
    answer(steps_dir, "uid-1-0.refused", refusal("Late", "a\n\x1b[31mb" + "c" * 400))
    (found,) = collect(steps_dir, "uid-1")
    assert found.text.startswith("a[31mbc")
    assert len(found.text) <= TEXT_MOST


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("plant", [link, os.mkfifo, os.mkdir], ids=["link", "pipe", "folder"])
def test_only_plain_files_are_answers(steps_dir: Path, plant: Callable[[Path], None]) -> None:
    plant(steps_dir / "trace" / "uid-1-0.json.gz")
    plant(steps_dir / "trace" / "uid-1-1.refused")
    (found,) = collect(steps_dir, "uid-1")
    assert (found.rank, found.path, found.reason) == (1, None, CaptureRefusal.FAILED)


@pytest.mark.parametrize("plant", [link, os.mkfifo, os.mkdir], ids=["link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["order", ".order", "armed"])
def test_what_a_tenant_plants_in_the_place_of_an_order_is_not_followed(
    steps_dir: Path, name: str, plant: Callable[[Path], None]
) -> None:
    before = Path("/etc/passwd").read_bytes()
    path = steps_dir / "trace" / name
    path.unlink(missing_ok=True)
    plant(path)
    try:
        place(steps_dir, ORDER)
    except OSError:
        pass  # an error of this order alone
    else:
        assert (steps_dir / "trace" / "order").is_file()
    assert Path("/etc/passwd").read_bytes() == before


def test_of_a_flood_of_entries_a_part_is_looked_at(steps_dir: Path) -> None:
    for number in range(2 * ENTRIES_MOST):
        (steps_dir / "trace" / f"uid-1-{number}.refused").touch()
    assert len(collect(steps_dir, "uid-1")) <= 16


def test_an_order_taken_back_is_gone_and_its_answers_too(steps_dir: Path) -> None:
    place(steps_dir, ORDER)
    placed = word(steps_dir)
    answer(steps_dir, "uid-1-0.json.gz", "trace")
    kept = answer(steps_dir, "uid-2-0.json.gz", "of another order")
    withdraw(steps_dir, "uid-1", keep_answers=True)
    assert not (steps_dir / "trace" / "order").exists()
    assert word(steps_dir) != placed, "a rank that still waits for the first step looks again"
    assert len(collect(steps_dir, "uid-1")) == 1
    withdraw(steps_dir, "uid-1")
    assert collect(steps_dir, "uid-1") == ()
    assert kept.exists()


def test_taking_an_order_back_leaves_a_newer_one_alone(steps_dir: Path) -> None:
    place(steps_dir, TraceOrder(id="uid-2", start_step=1, steps=1))
    placed = word(steps_dir)
    withdraw(steps_dir, "uid-1")
    assert (steps_dir / "trace" / "order").exists()
    assert word(steps_dir) == placed


def test_no_descriptor_is_left_open(steps_dir: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        place(steps_dir, ORDER)
        answer(steps_dir, "uid-1-0.refused", "no")
        collect(steps_dir, "uid-1")
        withdraw(steps_dir, "uid-1")
    assert len(os.listdir("/proc/self/fd")) == before
