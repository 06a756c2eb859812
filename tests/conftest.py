"""Fixtures that every part of the suite shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """A folder of real files; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("COHORTFLOW_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the real files are not on this machine (COHORTFLOW_SHARED_DATA)")
    return folder
