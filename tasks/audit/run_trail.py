"""What a run leaves in the record: what went in, what came out, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.audit.anchors import ENTRY, manifest_content, manifest_entry
from tasks.audit.event import Event
from tasks.audit.record import AuditRecord
from tasks.errors import TaskError
from tasks.files import file_sha256, read_json
from tasks.folder import RunFolder
from tasks.plan import Plan

STARTED, FINISHED, FAILED = "run.started", "run.finished", "run.failed"
REFUSED, CANCELLED, REMOVED = "run.refused", "run.cancelled", "results.removed"


@dataclass(frozen=True, slots=True)
class RunTrail:
    """The events of one run.

    Attributes:
        record: Where they are kept.
        run: The run's id.
        folder: Its output folder.
    """

    record: AuditRecord
    run: str
    folder: RunFolder

    def removed(self) -> None:
        """Records that the results of an earlier plan are about to be removed (``--overwrite``), if there are any."""
        if self.folder.plan.exists():
            self._append(REMOVED, {"plan_file_sha256": file_sha256(self.folder.plan)})

    def started(self, plan: Plan, sheet: Path, inputs: Mapping[str, Mapping[Path, str]]) -> None:
        """Records what is about to be computed of what.

        Args:
            plan: The run's plan.
            sheet: The sample sheet.
            inputs: For each sample the digests of its files; under an empty name those of all samples together.
        """
        files = {name: {str(path): digest for path, digest in each.items()} for name, each in inputs.items()}
        self._append(
            STARTED,
            {
                "sheet": {"path": str(sheet), "sha256": file_sha256(sheet)},
                "plan": plan.digest,
                "recipe": plan.recipe,
                "models": plan.models,
                "inputs": files,
            },
        )

    def finished(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Records how every sample ended and the digest of every file delivered.

        Args:
            manifest: What is to become the run's manifest; its report and tables are written.

        Returns:
            `manifest` with its anchor.
        """
        samples = {
            sample_id: {"status": each["status"], "reason": each["reason"], "outputs": self._delivered(sample_id)}
            for sample_id, each in manifest["samples"].items()
        }
        details = {
            "plan": manifest["plan"],
            "samples": samples,
            "outputs": {name: file_sha256(self.folder.root / name) for name in self.folder.cohort_files()},
            "manifest": manifest_content(manifest),
        }
        return {**manifest, ENTRY: manifest_entry(self.run, self._append(FINISHED, details))}

    def ended(self, error: BaseException) -> None:
        """Records that the run ended without a manifest: refused, failed or cancelled."""
        if not isinstance(error, Exception):
            self._append(CANCELLED, {})
            return
        told = error if isinstance(error, TaskError) else TaskError(f"{type(error).__name__}: {error}")
        kind = REFUSED if told.blame == "input" else FAILED
        self._append(kind, {"reason": told.reason, "message": told.message})

    def _delivered(self, sample_id: str) -> dict[str, str]:
        """SHA-256 of each file of a sample, as it was delivered."""
        for stage in ("output", "failed"):
            path = self.folder.summary(sample_id, stage)
            if path.exists():
                digests: dict[str, str] = read_json(path)["digests"]
                return digests
        return {}

    def _append(self, kind: str, details: dict[str, Any]) -> Event:
        return self.record.append(kind, {"run": self.run, "folder": str(self.folder.root), **details})
