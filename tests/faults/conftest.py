"""Faults done on purpose. Nothing a test here does may be lost without being counted, and nothing told twice."""

from pathlib import Path

import pytest

from tests.faults import plan
from tests.faults.processes import Place


def pytest_report_header() -> str:
    """What is tried, so that it can be tried again."""
    return f"faults: FAULTS_ROUNDS={plan.ROUNDS} FAULTS_SEED={plan.SEED}"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder of this test's own, and the environment of its commands."""
    return Place(tmp_path)
