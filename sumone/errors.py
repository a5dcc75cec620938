"""The tree of errors a user of SumOne can meet.

    SumOneError
    ├── ConfigError(ValueError)           a configuration or command line that cannot work
    ├── DataError(ValueError)             a file or record that cannot be read
    ├── ModelError(RuntimeError)          a model call that failed for good
    └── EnvironmentFailure(RuntimeError)  the machine: disk, network, a missing package

Each message says what is wrong, where, and what to do about it.
"""

__all__ = ["ConfigError", "DataError", "EnvironmentFailure", "ModelError", "SumOneError"]


class SumOneError(Exception):
    """Root of every error that SumOne raises on purpose; the CLI prints it without a traceback."""


class ConfigError(SumOneError, ValueError):
    """A configuration, option or command line that cannot work (exit code 2)."""


class DataError(SumOneError, ValueError):
    """A file or record that cannot be read or used (exit code 2)."""


class ModelError(SumOneError, RuntimeError):
    """A model call that failed after its retries; never turned into a score."""


class EnvironmentFailure(SumOneError, RuntimeError):  # noqa: N818 - a fixed public name
    """The machine cannot do it: no disk space, no network, a package that is missing."""
