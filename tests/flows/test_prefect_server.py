"""The private Prefect server: healthy when waited for, gone afterwards, silent to the outside."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from flows.prefect_server import prefect_api, wait_until_healthy

RUN = """
from flows.prefect_server import prefect_api, wait_until_healthy
with prefect_api() as url:
    wait_until_healthy(url)
    print(url)
"""


def test_server_answers_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHORTFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with prefect_api() as url:
        wait_until_healthy(url)
        assert os.environ["PREFECT_API_URL"] == url
        with urllib.request.urlopen(f"{url}/admin/settings") as answer:
            assert b'"analytics_enabled":false' in answer.read().replace(b" ", b"")
    assert "PREFECT_API_URL" not in os.environ
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/health")


def test_two_first_starts_share_one_home(tmp_path: Path) -> None:
    environment = {**os.environ, "COHORTFLOW_HOME": str(tmp_path)}
    environment.pop("PREFECT_API_URL", None)
    runs = [
        subprocess.Popen([sys.executable, "-c", RUN], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    urls = [run.communicate(timeout=120)[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(set(urls)) == 2


def test_a_server_of_the_user_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    with prefect_api() as url:
        assert url == "http://127.0.0.1:1/api"
    assert os.environ["PREFECT_API_URL"] == url
