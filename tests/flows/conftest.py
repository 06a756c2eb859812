"""Fixtures of the tests of whole runs."""

from __future__ import annotations

import pytest

from tests.flows.cohort import Cohort, make_cohort


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return make_cohort(tmp_path_factory.mktemp("cohort"))
