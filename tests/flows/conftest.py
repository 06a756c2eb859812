"""Fixtures of the tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.prefect_server import prefect_api, wait_until_healthy
from tests.flows.cohort import Cohort, make_cohort


@pytest.fixture(scope="session", autouse=True)
def prefect_server(own_home: Path) -> Iterator[str]:
    """One Prefect server for the runs of all tests; `own_server` gives a test's runs a server each."""
    with prefect_api() as url:
        wait_until_healthy(url)
        yield url


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs start a private server of their own, as they do where the user has none."""
    monkeypatch.delenv("PREFECT_API_URL")


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return make_cohort(tmp_path_factory.mktemp("cohort"))
