"""The checks, in the order in which they are run: what the others stand on comes first."""

from acceptance.checks.driver_limits import DRIVER_LIMITS
from acceptance.checks.kills import KILLS
from acceptance.checks.lifecycle import CONFIGURATION, LIFECYCLE, STATUS
from acceptance.checks.limit import LIMIT
from acceptance.checks.many_clients import CLIENT_LIMIT, COUNTING, UTILIZATION
from acceptance.checks.pairs import PAIRS
from acceptance.checks.pipe import NO_SHM, QUIT
from acceptance.checks.sm_fault import SM_FAULTS

__all__ = ["CHECKS"]

CHECKS = (
    LIFECYCLE,
    STATUS,
    CONFIGURATION,
    LIMIT,
    *DRIVER_LIMITS,
    NO_SHM,
    UTILIZATION,
    COUNTING,
    CLIENT_LIMIT,
    *QUIT,
    *SM_FAULTS,
    *KILLS,
    PAIRS,
)
