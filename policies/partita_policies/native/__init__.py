"""The part of the policies that is compiled: predictions by the hundred thousand.

The C sources stand beside this file. `hatch_build.py` compiles them into one library, in place for
an editable install and into the wheel otherwise. They use nothing but the C library.
"""

from ctypes import CDLL
from functools import cache
from pathlib import Path

__all__ = ["LIBRARY", "library"]

LIBRARY = Path(__file__).with_name("libpartita.so")
"""The compiled library; of this name on every platform."""


@cache
def library() -> CDLL:
    """Return the library, loaded when it is needed first: `fifo`, `sjf` and `fgd` run without it.

    Raises
    ------
    ImportError
        It cannot be loaded.
    """
    try:
        return CDLL(str(LIBRARY))
    except OSError as error:
        raise ImportError(
            f"{LIBRARY} cannot be loaded ({error}): install a wheel of partita for this platform, "
            "or run `make` again in a checkout; both need a C compiler once, such as gcc"
        ) from error
