"""Adds every published model from its package on the index, into a folder that is thrown away.

Each is added only if it answers as its publication's own tool does, so this is the comparison: digests of the wheels,
readers, and the values in `tasks/published/`. The packages are 235 MB together.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tasks.published.adding import READERS, add_model
from tasks.published.home import ModelsHome
from tasks.published.publication import PUBLICATIONS, PublishedModelError


def main() -> int:
    """Prints what was compared; returns 1 if a model could not be added."""
    num_failed = 0
    with tempfile.TemporaryDirectory() as folder:
        home = ModelsHome(Path(folder))
        for publication in PUBLICATIONS:
            begin = time.monotonic()
            try:
                add_model(publication, READERS[publication.name], home, is_accepted=True)
            except PublishedModelError as error:
                num_failed += 1
                print(f"{publication.name}: FAILED: {error.message}")
                continue
            facts = home.facts(publication.name)
            assert facts is not None
            print(f"{publication.name} ({time.monotonic() - begin:.0f} s): {facts['checked']}")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
