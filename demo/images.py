# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the three images from the one Dockerfile, without a registry and without a daemon.

The base is a minimal Debian made by debootstrap; users with a registry name their own, by digest.
Every step is keyed by a hash of its inputs and skipped when its result is at hand.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from demo.progress import CommandFailed, Progress, ending_with_a_reason, run

ROOT: Final = Path(__file__).resolve().parent.parent
WHEELS: Final = ROOT / "build" / "wheels"
IMAGES: Final = ROOT / "build" / "images"
BASE_ROOT: Final = ROOT / "build" / "base-root"
STORAGE: Final = ROOT / "build" / "image-storage"
"""On a real disk: image storage needs overlay, which tmpfs may refuse."""
TARGETS: Final = ("operator", "deviceplugin", "examples")
IMAGE_TOOLS: Final = ("buildah", "debootstrap")
"""Programs of Debian that build them."""
BASE_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
BASE_SUITE: Final = "bookworm"
BASE_PYTHON: Final = "3.11"
BASE_GLIBC: Final = 36
"""Of the base: 2.36. No wheel that needs a newer one is fetched."""
LOCAL: Final = "localhost"
TAG: Final = "dev"
BASE_IMAGE: Final = f"{LOCAL}/ullage-base:{TAG}"
WHEEL_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Platforms that images can be made for, and what wheels call their machine."""
STORAGE_ENV: Final = {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
SOURCES: Final = (
    "Dockerfile",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements",
    "operator",
    "deviceplugin",
    "runtime",
    "examples/digits",
    "examples/encoder",
    "examples/generative",
)
"""The wheel's metadata holds README and licence: the images have both."""


def image_name(target: str) -> str:
    """Name under which pods ask for the image of a target."""
    return f"{LOCAL}/ullage-{target}:{TAG}"


def cache_folder() -> Path:
    """Folder of what outlives a checkout: the base archive and downloaded wheels."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("ULLAGE_CACHE") or home) / "ullage" / "images"


def digest(paths: Iterable[Path], *words: str) -> str:
    """Hash of files (folders recursively, caches left out) and words, 16 hex digits."""
    total = hashlib.sha256("\0".join(words).encode())
    for top in paths:
        for path in sorted([top] if top.is_file() else top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROOT)).encode() + b"\0")
                total.update(path.read_bytes())
    return total.hexdigest()[:16]


def this_platform() -> str:
    """This machine's platform, as images name it."""
    names = {machine: name for name, machine in WHEEL_MACHINES.items()}
    return names.get(platform.machine(), platform.machine())


def build_key(base: str = "") -> str:
    """Names everything that the images are made from, but for the platform."""
    return digest((ROOT / name for name in SOURCES), *_base_words(base))


def build_all(progress: Progress, architecture: str = "", base: str = "") -> dict[str, Path]:
    """Build what is missing.

    Args:
        progress: Told of each step.
        architecture: ``amd64`` or ``arm64``; empty = this machine's.
        base: Image with Python that they stand on, by its digest; empty = one made here.

    Returns:
        The OCI archive of each target.

    Raises:
        SystemExit: a tool is missing, this machine runs no programs of that architecture, or the
            base is named by something that can become another image.
    """
    if base and not pinned(base):
        raise SystemExit(f"{base} may be another image tomorrow: name it as IMAGE@sha256:DIGEST")
    architecture = architecture or this_platform()
    if architecture not in WHEEL_MACHINES:
        raise SystemExit(f"no images for {architecture}: choose among {', '.join(WHEEL_MACHINES)}")
    if architecture != this_platform() and not _emulated(architecture):
        raise SystemExit(
            f"images for {architecture} cannot be built here: this machine is {this_platform()} "
            "and runs no other programs. Install qemu-user-static, or build on such a machine"
        )
    with _alone(progress):
        return _build_missing(progress, architecture, base)


def pinned(image: str) -> bool:
    """Whether a reference names an image by its content."""
    return re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", image) is not None


def base_of(architecture: str, base: str = "") -> tuple[str, str]:
    """What images stand on, once they are built.

    Returns:
        A name, and the SHA-256 of its manifest; for a base made here, of its archive.
    """
    if base:
        name, _, found = base.partition("@sha256:")
        return name, found
    with _base_archive(architecture).open("rb") as file:
        return f"debootstrap:{BASE_SUITE}", hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def building(progress: Progress) -> Iterator[None]:
    """Begin to build what is missing for this machine, in a process that ends with the body.

    The body does something else first; :func:`build_all` then waits for that process, and builds
    what it left, so that what fails in it is told there.

    Args:
        progress: Told when tools are installed, which comes first: the body may install packages.

    Raises:
        SystemExit: a tool is missing.
    """
    if all(archive.exists() for archive in _archives(this_platform()).values()):
        yield
        return
    install_tools(progress, *IMAGE_TOOLS)
    quiet = subprocess.DEVNULL
    build = subprocess.Popen(
        [sys.executable, "-m", "demo.images"], cwd=ROOT, stdout=quiet, stderr=quiet
    )
    try:
        yield
    finally:
        build.terminate()
        build.wait()


def _emulated(architecture: str) -> bool:
    """Whether the kernel runs programs of another architecture by an emulator."""
    return Path(f"/proc/sys/fs/binfmt_misc/qemu-{WHEEL_MACHINES[architecture]}").exists()


def _build_missing(progress: Progress, architecture: str, base: str) -> dict[str, Path]:
    archives = _archives(architecture, base)
    if all(archive.exists() for archive in archives.values()):
        progress.skip("images are up to date")
        return archives
    install_tools(progress, *IMAGE_TOOLS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for stale in IMAGES.glob(f"*-{architecture}-*.tar"):
        stale.unlink()
    made = None if base else _base(progress, architecture)
    _wheels(progress, architecture)
    with _emptied(STORAGE) as storage:
        if made is None:
            with progress.step(f"pull {base}", expect_s=30):
                _buildah(storage, "pull", "--quiet", "--platform", f"linux/{architecture}", base)
        else:
            _load_base(made, storage, progress)
        for target, archive in archives.items():
            with progress.step(f"build image {target}", expect_s=25):
                _build(target, archive, storage, architecture, base or BASE_IMAGE)
    return archives


def _archives(architecture: str, base: str = "") -> dict[str, Path]:
    """Where the archive of each target lies once it is built."""
    key = f"{architecture}-{build_key(base)}"
    return {target: IMAGES / f"{target}-{key}.tar" for target in TARGETS}


@contextmanager
def _alone(progress: Progress) -> Iterator[None]:
    """One build at a time in a working tree; the lock ends with the process that holds it."""
    STORAGE.parent.mkdir(exist_ok=True)
    with STORAGE.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step("build the images, begun by another process"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """A folder that goes at the end; what a killed build left in it goes first.

    Raises:
        CommandFailed: that cannot be removed.
    """
    _remove(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        with suppress(CommandFailed):  # it goes before the next build; the build's error counts
            _remove(folder)


def _remove(folder: Path) -> None:
    """Delete a folder with what buildah or debootstrap has mounted in it.

    Raises:
        CommandFailed: something holds it.
    """
    for point in reversed(mounts_below(folder, Path("/proc/self/mountinfo").read_text())):
        run("umount", "--lazy", point)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandFailed(f"remove {folder}: {error}") from error


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """Mount points below a folder, in the order in which they were mounted.

    Args:
        folder: An absolute path.
        mountinfo: Text of ``/proc/PID/mountinfo``, where spaces and the like are octal numbers.
    """
    points = [
        re.sub(r"\\([0-7]{3})", lambda number: chr(int(number[1], 8)), line.split()[4])
        for line in mountinfo.splitlines()
    ]
    return [point for point in points if Path(point).is_relative_to(folder)]


def install_tools(progress: Progress, *tools: str) -> None:
    """Install programs of Debian where that is possible, else name the line that does.

    Raises:
        SystemExit: a tool is missing and cannot be installed from here.
    """
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        line = f"apt-get install -y --no-install-recommends {' '.join(missing)}"
        raise SystemExit(f"{' and '.join(missing)} not found; install as root: {line}")
    with progress.step(f"install {' and '.join(missing)}", expect_s=30):
        wait = ("-o", "DPkg::Lock::Timeout=300", "-q")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", *wait, "update", env=quiet)
        run("apt-get", *wait, "install", "-y", "--no-install-recommends", *missing, env=quiet)


def _base_words(base: str) -> tuple[str, ...]:
    """What decides on the base."""
    return (base,) if base else (*BASE_PACKAGES, BASE_SUITE)


def _base_archive(architecture: str) -> Path:
    """Where the base that is made here lies."""
    made_from = digest((), *_base_words(""), architecture)
    return cache_folder() / f"base-{made_from}.tar"


def _base(progress: Progress, architecture: str) -> Path:
    """The base root file system as a tar archive, made once per machine."""
    archive = _base_archive(architecture)
    if archive.exists():
        progress.skip("base image is cached")
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        progress.step("make the base image (debootstrap)", expect_s=60),
        _emptied(BASE_ROOT) as root,
    ):
        run(
            "debootstrap",
            "--variant=minbase",
            f"--arch={architecture}",
            f"--include={','.join(BASE_PACKAGES)}",
            BASE_SUITE,
            str(root),
        )
        for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
            shutil.rmtree(root / waste, ignore_errors=True)
        partial = archive.with_suffix(".partial")
        run("tar", "-C", str(root), "--numeric-owner", "-cf", str(partial), ".")
        partial.rename(archive)
    return archive


def _wheels(progress: Progress, architecture: str) -> None:
    """Fetch every dependency for the base's Python, checked by hash; build the product's wheel."""
    folder = WHEELS / architecture
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("ullage-*.whl"):
        stale.unlink()
    with progress.step(f"fetch wheels for {architecture} and build the product's", expect_s=20):
        for requirements in ("operator", "router", "node", "examples"):
            fetch_wheels(requirements, folder, architecture)
        build_wheel(folder)


def fetch_wheels(requirements: str, folder: Path, architecture: str) -> None:
    """Download what a file of ``requirements/`` pins, for the base and an architecture.

    Raises:
        CommandFailed: a dependency has no wheel for it, or none with a pinned hash.
    """
    run(
        sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes",
        *pip_platform(architecture), "--dest", str(folder),
        "-r", str(ROOT / "requirements" / f"{requirements}.txt"),
    )  # fmt: skip


def pip_platform(architecture: str, glibc: int = BASE_GLIBC) -> list[str]:
    """Words for pip that choose wheels for the base's Python, an architecture and a glibc 2.x."""
    machine = WHEEL_MACHINES[architecture]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(glibc, 4, -1)]
    tags += [f"manylinux{old}_{machine}" for old in ("2014", "2010", "1")]
    words = ["--only-binary=:all:", "--implementation", "cp", "--python-version", BASE_PYTHON]
    return [*words, *(word for tag in tags for word in ("--platform", tag))]


def build_wheel(folder: Path) -> None:
    """The product's own wheel, into a folder."""
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
        "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT),
    )  # fmt: skip


def _buildah(storage: Path, *arguments: str) -> str:
    return run(
        "buildah",
        "--root",
        str(storage / "root"),
        "--runroot",
        str(storage / "run"),
        *arguments,
        env=STORAGE_ENV,
    )


def _load_base(base: Path, storage: Path, progress: Progress) -> None:
    with progress.step("load the base image", expect_s=10):
        container = _buildah(storage, "from", "scratch").strip()
        _buildah(storage, "add", "--quiet", container, str(base), "/")
        _buildah(storage, "commit", "--quiet", "--rm", container, BASE_IMAGE)


def _build(target: str, archive: Path, storage: Path, architecture: str, base: str) -> None:
    name = image_name(target)
    _buildah(
        storage, "build", "--quiet", "--layers", "--pull-never", "--format", "oci",
        "--platform", f"linux/{architecture}", "--build-arg", f"TARGETARCH={architecture}",
        "--build-arg", f"BASE={base}", "--target", target, "--tag", name, str(ROOT),
    )  # fmt: skip
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    _buildah(storage, "push", "--quiet", name, f"oci-archive:{partial}:{name}")
    partial.rename(archive)


def main() -> None:
    """Build all images and print where they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", action="store_true", help="fetch what they install, no more")
    parser.add_argument(
        "--platform", choices=tuple(WHEEL_MACHINES), default=this_platform(), help="of the images"
    )
    options = parser.parse_args()
    with ending_with_a_reason():
        if options.wheels:
            _wheels(Progress(), options.platform)
            return
        archives = build_all(Progress(), options.platform)
    for target, archive in archives.items():
        print(f"{image_name(target)}\t{archive}")


if __name__ == "__main__":
    main()
