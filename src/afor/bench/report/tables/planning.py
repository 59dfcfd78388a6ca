"""Build the tables on what a study can decide: calibration, variance components, power."""

import math
from collections.abc import Sequence

from afor.bench.common.errors import ConfigError
from afor.bench.execution.estimate import clock
from afor.bench.report.tables.formats import Column, Row, Table, TableCell
