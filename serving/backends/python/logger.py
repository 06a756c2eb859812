"""What a Python model writes to the log."""

from __future__ import annotations

import logging


class Logger:
    """Triton's ``pb_utils.Logger``: writes to the Python logger ``serving.models.<model>``."""

    INFO = logging.INFO
    WARN = WARNING = logging.WARNING
    ERROR = logging.ERROR
    VERBOSE = logging.DEBUG

    def __init__(self, model: str) -> None:
        self._log = logging.getLogger(f"serving.models.{model}")

    def log(self, message: str, level: int = INFO) -> None:
        """Writes a line of a level."""
        self._log.log(level, "%s", message)

    def log_info(self, message: str) -> None:
        """Writes a line."""
        self.log(message, self.INFO)

    def log_warn(self, message: str) -> None:
        """Writes a warning."""
        self.log(message, self.WARN)

    def log_error(self, message: str) -> None:
        """Writes an error."""
        self.log(message, self.ERROR)

    def log_verbose(self, message: str) -> None:
        """Writes a line that is shown at the level DEBUG."""
        self.log(message, self.VERBOSE)
