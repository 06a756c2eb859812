"""Fixtures that several of these tests share."""

from __future__ import annotations

import pytest

from tests.tasks.families import Population, make_population


@pytest.fixture(scope="session")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """A small genome and the alleles of its population."""
    return make_population(tmp_path_factory.mktemp("population"))
