"""Fixtures of the model server's tests."""

from tests.redis_fixture import redis_server  # noqa: F401
from tests.serving.functions import functions  # noqa: F401
from tests.serving.gated import gate  # noqa: F401
