"""The python backend: a model is a ``model.py`` with a class ``TritonPythonModel``, as in Triton.

Each instance of a model runs in a thread of this process, with modules of its own (`modules`) and with a
``triton_python_backend_utils`` of its own (`interface`). What of Triton's is there and what is not: docs/serving.md.
"""
