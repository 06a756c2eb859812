"""Fixtures that every part of the suite shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent

# The first example of a numba kernel pays for its compilation: no deadline.
settings.register_profile("suite", deadline=None, print_blob=True)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """A folder of real files; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("COHORTFLOW_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the real files are not on this machine (COHORTFLOW_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps the suite out of the user's home: Prefect's database is made once, for all tests."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COHORTFLOW_HOME", str(folder))
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.delenv("COHORTFLOW_REDIS_URL", raising=False)
        yield folder
