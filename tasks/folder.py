"""The output folder of a run: where everything is, and the lock that keeps two runs out of it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import FolderError
from tasks.files import FILE_MODE, make_folder
from tasks.plan import read_plan

_MULTIQC, _MULTIQC_REASONS, _MULTIQC_IDENTITY = "cohort_mqc.json", "cohort_reasons_mqc.json", "identity_mqc.json"
_MULTIQC_COVERAGE = "cohort_coverage_mqc.json"
_ALLELES, _ALLELE_GENES = "cohort/alleles.parquet", "cohort/allele_gene.parquet"
_IDENTITY = "cohort/identity.parquet"
_OURS = (
    "plan.json",
    "manifest.json",
    "report.html",
    _MULTIQC,
    _MULTIQC_REASONS,
    _MULTIQC_COVERAGE,
    _MULTIQC_IDENTITY,
    _ALLELES,
    _ALLELE_GENES,
    _IDENTITY,
)
_LOCK, _MARK = ".lock", ".cohortflow"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths below one output folder. Everything that a resume needs is under ``work``.

    What lies in it under other names than those of a run is its owner's, and is left alone.
    """

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
        return self.root / _IDENTITY

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
        return self.root / _ALLELES

    @property
    def allele_genes(self) -> Path:
        """Answers by allele and gene; there where the pipeline has that grain."""
        return self.root / _ALLELE_GENES

    @property
    def alleles_digest(self) -> Path:
        """The digests of `alleles` and `allele_genes` as written: known scores are taken from no other file."""
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
    def transcripts(self) -> Path:
        """One transcript a gene, read once for the run; there where the pipeline needs them."""
        return self.work / "transcripts.parquet"

    @property
    def models(self) -> Path:
        """Links to the models of two repositories, where the pipeline's are not those that ship."""
        return self.work / "models"

    @property
    def digests(self) -> Path:
        """The digests of the inputs, so that none is read twice for them."""
        return self.work / "digests.json"

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

    def sample_files(self, sample_id: str) -> list[Path]:
        """What a run wrote, or began to write, to a sample's folder: the files that bear the sample's name."""
        names = (f"{sample_id}.", f".{sample_id}.")
        folder = self.sample(sample_id)
        return sorted(p for p in folder.iterdir() if p.name.startswith(names)) if folder.is_dir() else []

    def cohort_files(self) -> list[str]:
        """The files of a run that belong to no single sample, but for its manifest: names below the folder."""
        return [name for name in _OURS if name != self.manifest.name and (self.root / name).exists()]

    def remove_sample(self, sample_id: str) -> None:
        """Removes a sample's outputs and state."""
        shutil.rmtree(self.sample_work(sample_id), ignore_errors=True)
        for path in self.sample_files(sample_id):
            path.unlink()
        _remove_if_empty(self.sample(sample_id))

    def clear(self) -> None:
        """Removes everything that a run of ours has put here, and nothing else."""
        state = self.work / "samples"
        for path in state.iterdir() if state.is_dir() else ():
            self.remove_sample(path.name)
        for name in _OURS:
            (self.root / name).unlink(missing_ok=True)
        for name in ("samples", "cohort"):
            _remove_if_empty(self.root / name)
        shutil.rmtree(self.work, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _is_ours(root: Path) -> bool:
    """Whether a folder is empty but for a lock, or bears the mark or the plan of a run."""
    names = {path.name for path in root.iterdir()}
    if _MARK in names or names <= {_LOCK}:
        return True
    try:
        return read_plan(root / "plan.json") is not None
    except FolderError:
        return False


@contextmanager
def locked_folder(root: Path) -> Iterator[RunFolder]:
    """Opens a run's folder, creating it (mode 0700), and holds its lock.

    The first thing written is a mark: a folder that holds anything and lacks it is somebody else's, whatever its names.

    The lock is the operating system's: it ends with the process, however that dies.

    Raises:
        FolderError: Another run holds it, it holds files of others, or it cannot be written.
    """
    if root.exists() and not root.is_dir():
        raise FolderError(f"{root}: is a file; --output must name a folder", field="output")
    try:
        make_folder(root)
        if not _is_ours(root):
            raise FolderError(f"{root}: holds files that no run of ours wrote; choose an empty folder", field="output")
        os.close(os.open(root / _MARK, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))
        lock = os.open(root / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
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
