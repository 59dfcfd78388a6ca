"""The errors of the benchmark, each with the exit code of the command line.

AforError
├── ConfigError      2  a study, option or argument is not valid
├── DataError        3  a recording is missing, broken or not what it claims to be
│   ├── AbsentError  3  the files of a data set are not there
│   └── LeakageError 3  one subject's data on both sides of a split
├── StoreError       4  the results file cannot be read or written
├── EngineError      1  the workers cannot be reached or keep dying
└── TrainingError    1  a run could not be trained to the end
"""


class AforError(Exception):
    """Base class of all errors of the benchmark.

    The message says what is wrong, where, what is accepted and what to do.

    Example:
        >>> from afor.bench import AforError, load_study
        >>> try:
        ...     load_study("dmeo")
        ... except AforError as error:
        ...     print(error.exit_code)
        2
    """

    exit_code = 1


class ConfigError(AforError):
    """A study, option or argument is not valid."""

    exit_code = 2


class DataError(AforError):
    """A recording is missing, broken or not what it claims to be."""

    exit_code = 3


class AbsentError(DataError):
    """The files of a data set are not there."""


class LeakageError(DataError):
    """One subject's data stands on both sides of a split."""


class StoreError(AforError):
    """The results file cannot be read or written."""

    exit_code = 4


class EngineError(AforError):
    """The workers cannot be reached or keep dying."""


class TrainingError(AforError):
    """A run could not be trained to the end."""


class CannotBundleError(TrainingError):
    """A run cannot be trained with the others of its bundle; by itself it can."""
