"""The tests that docs/serving.md names are there."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"


def test_every_test_of_the_table_exists():
    missing, file = [], ""
    for name in re.findall(r"`((?:[\w.]+/)*test_\w+\.py|(?:(?:[\w.]+/)*test_\w+\.py)?::test_\w+)`", DOCS.read_text()):
        path, _, function = name.partition("::")
        file = path or file
        text = (Path(__file__).parent / file).read_text()
        if function and f"def {function}(" not in text:
            missing.append(f"{file}::{function}")
    assert not missing
