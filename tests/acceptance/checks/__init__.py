"""The checks, in the order in which they are run: what the others stand on comes first."""

from acceptance.checks.cache import CACHE
from acceptance.checks.clients import CLIENTS
from acceptance.checks.lifecycle import LIFECYCLE, STATUS
from acceptance.checks.limit import LIMIT
from acceptance.checks.pairs import PAIRS
from acceptance.checks.profile import PROFILE

__all__ = ["CHECKS"]

CHECKS = (LIFECYCLE, STATUS, LIMIT, CLIENTS, PROFILE, CACHE, PAIRS)
