"""How many NVIDIA GPUs this process may use, asked of the driver itself: no Python package is needed for it."""

from __future__ import annotations

import ctypes
from functools import cache

_SUCCESS = 0


@cache
def count_gpus() -> int:
    """Number of GPUs the driver shows; 0 without a driver.

    Source: CUDA driver API, cuInit and cuDeviceGetCount.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != _SUCCESS or driver.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
        return 0
    return count.value
