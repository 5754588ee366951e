# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: one thread of linear algebra, no deadline, room to write fast.

Must never hold what only some tests need: their own folders have that.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from fakes.scratch import fast_directory

# As in the chart. Threads that wait for each other on shared cores make small solves take minutes;
# the libraries read this when they are loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# What an example takes says something about the machine alone. A gate gives one commit one answer:
# its examples follow from the test's own text. `many`: more of them where `fakes.examples` says so.
# `make explore` draws new ones each time.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", _PATIENT, derandomize=True)
settings.register_profile("many", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT, max_examples=1000)
settings.load_profile(os.environ.get("ULLAGE_EXAMPLES", "gate"))


def log_plainly() -> None:
    """By default structlog draws every local variable of a traceback, a second for each."""
    structlog.reset_defaults()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ]
    )


log_plainly()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes seconds by itself may take minutes on a busy machine."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True)
def no_log_settings_outlive_their_test() -> Iterator[None]:
    """A program that a test runs in this process logs to a stream that ends with the test."""
    yield
    if not isinstance(structlog.get_config()["logger_factory"], structlog.PrintLoggerFactory):
        log_plainly()
    root = logging.getLogger()
    root.handlers[:] = [
        handler
        for handler in root.handlers
        if not isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter)
    ]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for very many writes; gone after the test."""
    made = fast_directory()
    yield made
    shutil.rmtree(made)
