"""The cluster: addresses, two real workers that host models, and a unit of work that kills them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster, get_worker

from flows.shards import WorkerLostError, run_unit, run_units
from tasks.cluster import (
    RedisAddressError,
    SchedulerAddressError,
    caution_workers_without_redis,
    check_address,
    check_redis,
    open_cluster,
)
from tasks.errors import VariantFileError
from tasks.model_host import ModelMismatchError, host_digests, host_statistics, model_server
from tests.conftest import REPOSITORY
from tests.flows.cohort import Cohort, records, run_command

MODELS = REPOSITORY / "data" / "models"


def digest_after(expected: dict[str, str]) -> str:
    return model_server(expected).digest("variants")


def die(marker: str) -> None:
    with open(marker, "a") as handle:
        handle.write(f"{get_worker().name}\n")
    os._exit(9)


def double(number: int) -> int:
    return 2 * number


def fail(number: int) -> None:
    raise VariantFileError(f"file {number}", reason="TRUNCATED", field="vcf")


def digest_of_each(client: Client) -> set[str]:
    """What the workers say of the same model, each asked by name."""
    workers = client.scheduler_info()["workers"]
    return {client.submit(digest_after, {}, pure=False, workers=[address]).result() for address in workers}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with open_cluster(MODELS, workers=2) as client:
        yield client


@pytest.mark.parametrize("address", ["127.0.0.1:8786", "http://h:1", "tcp://h", "tcp://h:port", "tls://:1", ""])
def test_wrong_addresses_are_told(address: str) -> None:
    with pytest.raises(SchedulerAddressError, match="tcp://host:port"):
        check_address(address)


def test_an_open_scheduler_is_cautioned() -> None:
    assert check_address("tcp://127.0.0.1:8786") == check_address("tls://far:8786") == ""
    assert "use tls://" in check_address("tcp://far:8786")


def test_a_redis_password_is_never_shown() -> None:
    assert "does not answer" in check_redis("redis://user:secret@127.0.0.1:1/0")
    assert "secret" not in check_redis("redis://user:secret@127.0.0.1:1/0")
    with pytest.raises(RedisAddressError) as caught:
        check_redis("http://:secret@host")
    assert "secret" not in str(caught.value)


def test_two_workers_host_the_same_models(client: Client) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    found = digest_of_each(client)
    assert len(found) == 1
    digests = run_unit(host_digests, ["variants", "reads"], what="models")
    assert digests["variants"]["digest"] in found
    assert all("variants" in each for each in client.run(host_statistics).values())


def test_other_models_than_the_plans_are_refused(client: Client) -> None:
    with pytest.raises(ModelMismatchError, match="variants"):
        run_unit(digest_after, {"variants": "0" * 64}, what="models")


def test_units_answer_in_order_and_errors_keep_their_class(client: Client) -> None:
    done: list[int] = []
    assert run_units(double, [(n,) for n in range(20)], what="numbers", on_done=lambda: done.append(1)) == [
        2 * n for n in range(20)
    ]
    assert len(done) == 20
    with pytest.raises(VariantFileError) as caught:
        run_units(fail, [(1,)], what="file")
    assert (caught.value.reason, caught.value.field) == ("TRUNCATED", "vcf")


def test_a_unit_that_kills_its_workers_is_given_up(client: Client, tmp_path: Path) -> None:
    marker = tmp_path / "lives"
    with pytest.raises(WorkerLostError, match="sample A"):
        run_units(die, [(str(marker),)], what="sample A")
    assert len(marker.read_text().splitlines()) == 2
    assert run_unit(double, 4, what="afterwards") == 8
    # The workers that came anew host models of their own.
    assert len(digest_of_each(client)) == 1


def test_a_run_on_somebody_elses_cluster(cohort: Cohort, tmp_path: Path) -> None:
    sheet = cohort.sheet("remote.csv", [{"sample": "V", "vcf": cohort.vcf}])
    arguments = ["score", sheet, "--reference", cohort.reference, "--output", tmp_path / "out"]
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        run = run_command(*arguments, "--scheduler", cluster.scheduler_address)
        assert run.returncode == 0, run.stderr
        workers = cluster.scheduler_info["workers"]
        assert len(workers) == 2
    assert len(records(tmp_path / "out/samples/V/V.vcf.gz")) == len(records(cohort.vcf))


def test_workers_without_the_redis_of_this_process_are_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caution_workers_without_redis(client) == ""
    monkeypatch.setenv("COHORTFLOW_REDIS_URL", "redis://:hunter2@far:6379/0")
    told = caution_workers_without_redis(client)
    assert "COHORTFLOW_REDIS_URL is set here, but not for 2 of the cluster's workers (tcp://127.0.0.1:" in told
    assert "hunter2" not in told


def test_no_scheduler_there(cohort: Cohort, tmp_path: Path) -> None:
    sheet = cohort.sheet("remote.csv", [{"sample": "V", "vcf": cohort.vcf}])
    arguments = ["score", sheet, "--reference", cohort.reference, "--output", tmp_path / "out"]
    run = run_command(*arguments, "--scheduler", "tcp://127.0.0.1:1")
    assert run.returncode == 1
    assert "is the scheduler up" in run.stderr
