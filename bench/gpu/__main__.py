# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.gpu preflight|r1|r2|analyse``: measurements of one GPU, or their dry run."""

from __future__ import annotations

import argparse
import random
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.gpu.device import NoDevice
from bench.gpu.first_hour import FirstHour
from bench.gpu.mps import Transcript
from bench.gpu.preflight import Preflight, Result
from bench.gpu.rig import DRY_SCALE, dry_rig, real_rig
from bench.gpu.runner import Options, Run, needs, transcript_of
from bench.gpu.schema import RowRefused
from bench.progress import Progress
from bench.report import FOLDER
from ullage.process.environment import LogLevel
from ullage.process.logs import configure_logs


def _part(text: str) -> tuple[int, int]:
    first, _, count = text.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 1/2")
    return int(first), int(count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("what", choices=("preflight", "r1", "r2", "analyse"))
    parser.add_argument("rows", nargs="*", type=Path, help="analyse: files, or folders of files")
    parser.add_argument("--dry", action="store_true", help="without a GPU, against the fakes")
    parser.add_argument("--out", type=Path, default=FOLDER / "gpu", help="folder of the files")
    parser.add_argument("--minutes", type=float, default=9.5, help="own timer (default 9.5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-id", default="", help="the same for all parts of a run")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N")
    parser.add_argument("--tenants", default="", help="fewer tenants, by name, with commas")
    parser.add_argument("--scale", type=float, default=DRY_SCALE, help="dry: seconds per second")
    parser.add_argument("--mps-dir", type=Path, help="MPS's folder (default: a new one)")
    parser.add_argument("--gpu", default="", help="analyse: rows of this GPU type only")
    parser.add_argument("--plot", action="store_true", help="analyse: pictures, needs matplotlib")
    return parser


def _run(options: argparse.Namespace) -> int:
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{random.SystemRandom().randrange(1 << 16):04x}"
    tenants = tuple(one for one in options.tenants.split(",") if one)
    needs(tenants)
    chosen = Options(
        name=options.what,
        out=options.out,
        run_id=options.run_id or f"{options.what}-{'dry-' if options.dry else ''}{stamp}",
        seed=options.seed,
        minutes=options.minutes,
        part=options.part,
        tenants=tenants,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    transcript = transcript_of(chosen)
    rig = dry_rig(transcript, scale=options.scale) if options.dry else real_rig(transcript)
    if options.mps_dir is not None:
        rig.mps.move(options.mps_dir)
    transcript.note(rig.device.facts.said())
    try:
        with Progress() as progress:
            windows = progress.task("windows", 0)

            def done(count: int, planned: int) -> None:
                windows.total = planned
                windows.to(count)

            run = Run(chosen, rig, progress.say, done)
            signal.signal(signal.SIGTERM, lambda *_: run.stop("SIGTERM"))
            signal.signal(signal.SIGINT, lambda *_: run.stop("interrupted"))
            outcome = run.do()
    finally:
        rig.close()
    print(f"{outcome.windows} windows, ended: {outcome.ended}")
    for path in (outcome.rows, outcome.summary, outcome.transcript):
        print(path)
    return 0


def _preflight(options: argparse.Namespace) -> int:
    """The first hour, then command 0; 1 = a step of the first hour failed."""
    configure_logs(LogLevel.WARNING)
    options.out.mkdir(parents=True, exist_ok=True)
    transcript = Transcript(options.out / "gpu-preflight.txt")
    transcript.path.unlink(missing_ok=True)
    rig = dry_rig(transcript, scale=options.scale) if options.dry else real_rig(transcript)

    def tell(result: Result) -> None:
        line = f"{'ok    ' if result.ok else 'FAILED'} {result.name}: {result.detail}"
        print(line, flush=True)
        transcript.note(line)

    try:
        print(rig.device.facts.said())
        print("First hour, with the product's own code")
        first = FirstHour(rig, tell).run()
        print("Command 0")
        for result in Preflight(rig).run().results:
            tell(result)
    finally:
        rig.close()
    print(transcript.path)
    return 0 if all(result.ok for result in first) else 1


def _analyse(options: argparse.Namespace) -> int:
    from bench.gpu.analysis import analyse

    print(analyse(options.rows or [options.out], options.out, options.seed, options.gpu))
    if options.plot:
        from bench.gpu.pictures import draw

        for path in draw(options.rows or [options.out], options.out, options.gpu):
            print(path)
    return 0


def main() -> int:
    """Entry point."""
    options = _parser().parse_args()
    try:
        if options.what == "preflight":
            return _preflight(options)
        return _analyse(options) if options.what == "analyse" else _run(options)
    except (NoDevice, RowRefused, ValueError) as error:
        print(f"bench.gpu: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
