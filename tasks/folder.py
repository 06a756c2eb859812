"""The output folder of a run: where everything is, and the lock that keeps two runs out of it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import FolderError
from tasks.files import FILE_MODE, make_folder

_MULTIQC, _MULTIQC_REASONS, _MULTIQC_IDENTITY = "cohort_mqc.json", "cohort_reasons_mqc.json", "identity_mqc.json"
_MULTIQC_COVERAGE = "cohort_coverage_mqc.json"
_OURS = (
    "plan.json",
    "manifest.json",
    "report.html",
    _MULTIQC,
    _MULTIQC_REASONS,
    _MULTIQC_COVERAGE,
    _MULTIQC_IDENTITY,
    "samples",
    "cohort",
    "work",
)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths below one output folder. Everything that a resume needs is under ``work``."""

    root: Path

    @property
    def plan(self) -> Path:
        """What the run computes, written before work starts."""
        return self.root / "plan.json"

    @property
    def manifest(self) -> Path:
        """What the run did, written last."""
        return self.root / "manifest.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.root / "report.html"

    @property
    def multiqc(self) -> Path:
        """The table of samples for MultiQC."""
        return self.root / _MULTIQC

    @property
    def multiqc_reasons(self) -> Path:
        """Why alleles have no score, for MultiQC; absent where all have one."""
        return self.root / _MULTIQC_REASONS

    @property
    def multiqc_identity(self) -> Path:
        """Sex and kinship for MultiQC; absent where nothing could be told."""
        return self.root / _MULTIQC_IDENTITY

    @property
    def identity(self) -> Path:
        """How alike every two samples are."""
        return self.root / "cohort" / "identity.parquet"

    @property
    def identity_summary(self) -> Path:
        """What was found of who the samples are."""
        return self.work / "identity.json"

    @property
    def multiqc_coverage(self) -> Path:
        """How much of each sample is covered how deep, for MultiQC; absent without reads."""
        return self.root / _MULTIQC_COVERAGE

    @property
    def alleles(self) -> Path:
        """Scores of every distinct allele of the cohort."""
        return self.root / "cohort" / "alleles.parquet"

    @property
    def alleles_digest(self) -> Path:
        """The digest of `alleles` as it was written: known scores are taken from no other file."""
        return self.work / "alleles.json"

    @property
    def work(self) -> Path:
        """State of the run, not for users."""
        return self.root / "work"

    @property
    def reference(self) -> Path:
        """Tokens, indices and description of the reference."""
        return self.work / "reference"

    @property
    def exons(self) -> Path:
        """The exons of the run's genes; absent where none are given."""
        return self.work / "exons.parquet"

    @property
    def settings(self) -> Path:
        """Where inputs are and how the run works: what the workers need and the plan's identity does not hold."""
        return self.work / "settings.json"

    @property
    def scores(self) -> Path:
        """Shards of scored alleles."""
        return self.work / "scores"

    @property
    def annotations(self) -> Path:
        """What annotation files say of the cohort's alleles: a table and the counts of each."""
        return self.work / "annotations"

    def sample(self, sample_id: str) -> Path:
        """Outputs of one sample."""
        return self.root / "samples" / sample_id

    def sample_work(self, sample_id: str) -> Path:
        """State of one sample."""
        return self.work / "samples" / sample_id

    def genotypes(self, sample_id: str) -> Path:
        """A sample's genotypes at single-base sites, for its identity."""
        return self.sample_work(sample_id) / "genotypes.parquet"

    def summary(self, sample_id: str, stage: str) -> Path:
        """The marker and counts of a finished stage of one sample."""
        return self.sample_work(sample_id) / f"{stage}.json"

    def clear(self) -> None:
        """Removes everything that a run of ours has put here, and nothing else."""
        for name in _OURS:
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def locked_folder(root: Path) -> Iterator[RunFolder]:
    """Opens a run's folder, creating it (mode 0700), and holds its lock.

    The lock is the operating system's: it ends with the process, however that dies.

    Raises:
        FolderError: Another run holds it, it holds files of others, or it cannot be written.
    """
    if root.exists() and not root.is_dir():
        raise FolderError(f"{root}: is a file; --output must name a folder", field="output")
    try:
        make_folder(root)
        foreign = not (root / "plan.json").exists() and any(p.name not in (".lock", *_OURS) for p in root.iterdir())
        if foreign:
            raise FolderError(f"{root}: holds files that no run of ours wrote; choose an empty folder", field="output")
        lock = os.open(root / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise FolderError(f"{root}: cannot be written: {error.strerror}", field="output") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            raise FolderError(
                f"{root}: another run (process {holder or 'unknown'}) works in this folder; wait for it or stop it",
                field="output",
                reason="LOCKED",
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield RunFolder(root)
    finally:
        os.close(lock)
