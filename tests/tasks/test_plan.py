"""The plan: identity without paths, and which plans may go on in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import FolderError
from tasks.plan import Plan, check_resumable, digest_files, read_plan

RECIPE = {"version": "1", "models": {"variants": {"digest": "a" * 64}}, "padding_bp": 0}
A, B = {"kind": "vcf", "files": ["1" * 64]}, {"kind": "vcf", "files": ["2" * 64]}


def test_plan_survives_its_file(tmp_path: Path) -> None:
    plan = Plan(RECIPE, {"A": A})
    plan.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    assert read_plan(tmp_path / "none.json") is None


def test_a_broken_plan_is_told(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(FolderError, match="not a plan"):
        read_plan(tmp_path / "plan.json")


def test_a_sample_keeps_its_identity_when_others_join() -> None:
    alone, joined = Plan(RECIPE, {"A": A}), Plan(RECIPE, {"A": A, "B": B})
    assert alone.digest != joined.digest
    assert alone.sample_digest("A") == joined.sample_digest("A") != joined.sample_digest("B")


def test_samples_may_join_and_unfinished_ones_change() -> None:
    check_resumable(Plan(RECIPE, {"A": A}), Plan(RECIPE, {"A": A, "B": B}), ["A"])
    assert check_resumable(Plan(RECIPE, {"A": A, "B": B}), Plan(RECIPE, {"A": A, "B": A}), ["A"]) == {}


def test_a_finished_sample_that_changed_is_told_with_what_changed() -> None:
    old, new = Plan(RECIPE, {"A": A, "B": B}), Plan(RECIPE, {"A": A, "B": {**B, "files": ["4" * 64]}})
    changed = check_resumable(old, new, ["A", "B"], {"4" * 64: "new.vcf"})
    assert changed == {"B": ["files: was 222222222222…, now 444444444444… (new.vcf)"]}


def test_a_plan_under_which_nothing_finished_may_be_replaced() -> None:
    check_resumable(Plan(RECIPE, {"A": A}), Plan({**RECIPE, "padding_bp": 10}, {"B": B}), [])


def test_how_many_reads_are_embedded_is_chosen_for_all_samples() -> None:
    reads = {"kind": "fastq", "lanes": [], "models": {"reads": {"digest": "c" * 64}}}
    old, new = (Plan(RECIPE, {"A": A, "F": each}) for each in ({**reads, "embed_reads": 10_000}, reads))
    assert old.sample_digest("F") != new.sample_digest("F")
    with pytest.raises(FolderError, match="sample F, embed_reads: was 10000, now none"):
        check_resumable(old, new, ["F"])


def test_every_difference_is_named() -> None:
    other = {**RECIPE, "padding_bp": 10, "models": {"variants": {"digest": "b" * 64}}}
    with pytest.raises(FolderError) as caught:
        check_resumable(Plan(RECIPE, {"A": A, "B": B}), Plan(other, {"A": B}), ["A", "B"])
    for text in (
        "padding_bp: was 0, now 10",
        "models.variants.digest",
        "sample B: is in the folder",
        "put the missing samples' lines back",
        "--overwrite, which does all samples anew",
    ):
        assert text in str(caught.value)


def test_differences_are_told_in_words() -> None:
    lanes = {"kind": "fastq", "files": [], "lanes": [["1", "3" * 64, None, False]]}
    caller = {**lanes, "lanes": [["1", "3" * 64, "4" * 64, True]], "models": {"reads": {"version": 2}}}
    plans = Plan(RECIPE, {"A": lanes}), Plan(RECIPE, {"A": {**caller, "models": {}}})
    now = "now 1, 333333333333…, 444444444444… (R2.fq), yes"
    assert check_resumable(*plans, ["A"], {"4" * 64: "R2.fq"}) == {
        "A": [f"lanes: was 1, 333333333333…, none, no, {now}"]
    }
    with pytest.raises(FolderError) as caught:
        check_resumable(Plan(RECIPE, {"A": lanes}), Plan(RECIPE, {"A": caller}), ["A"])
    assert "sample A, models.reads.version: was none, now 2" in str(caught.value)
    assert not set("[]{}") & set(str(caught.value))


def test_annotations_differ_by_name_and_file() -> None:
    field = {"id": "CLNSIG", "description": "long"}
    source: dict[str, Any] = {"name": "clinvar", "digest": "5" * 64, "fields": [field]}
    other = {"name": "gnomad", "digest": "6" * 64, "fields": []}

    def refusal(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> str:
        plans = (Plan(RECIPE | {"annotations": each}, {"A": A}) for each in (before, now))
        with pytest.raises(FolderError) as caught:
            check_resumable(*plans, ["A"], {"7" * 64: "clinvar_new.vcf.gz"})
        return str(caught.value)

    assert "annotations.clinvar: was clinvar (555555555555…), now none\n" in refusal([source], [])
    assert "long" not in refusal([source], [])
    newer = refusal([source, other], [{**source, "digest": "7" * 64}, other])
    assert "annotations.clinvar.digest: was 555555555555…, now 777777777777… (clinvar_new.vcf.gz)\n" in newer
    assert "gnomad" not in newer
    fields = refusal([source], [{**source, "fields": [*source["fields"], {"id": "MC", "description": "long"}]}])
    assert "annotations.clinvar.fields.MC: was none, now MC\n" in fields
    assert "annotations: was clinvar, gnomad, now gnomad, clinvar\n" in refusal([source, other], [other, source])


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    path, memory = tmp_path / "input.vcf", tmp_path / "digests.json"
    path.write_bytes(b"old")
    first = digest_files([path, path], memory)[path]
    assert first == "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"
    before = path.stat()
    with open(path, "r+b") as handle:
        handle.write(b"new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_files([path], memory)[path] == first
    os.utime(path)
    assert digest_files([path], memory)[path] != first
