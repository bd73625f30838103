"""tutti: collective communication for arrays of any library.

    import numpy, tutti
    with tutti.Communicator.from_launcher() as comm:
        x = numpy.ones(1000, numpy.float32)
        comm.all_reduce(x)

Run it with `python -m tutti.launch -n 4 script.py`, mpirun, srun or torchrun.
"""

from ._communicator import (AVG, BAND, BOR, BXOR, MAX, MIN, PROD, SUM, Communicator, launcher_context, unique_id)
from ._library import version
from ._streams import Stream, Work, group
from .errors import (AbortedError, Error, InProgressError, InternalError, InvalidArgumentError, InvalidUsageError,
                     MismatchError, OutOfMemoryError, PeerLostError, SystemCallError, TimeoutError, UnsupportedError,
                     VersionMismatchError)

__version__ = version()
__all__ = ["AVG", "BAND", "BOR", "BXOR", "MAX", "MIN", "PROD", "SUM", "Communicator", "Stream", "Work", "group",
           "launcher_context", "unique_id", "version", "AbortedError", "Error", "InProgressError", "InternalError",
           "InvalidArgumentError", "InvalidUsageError", "MismatchError", "OutOfMemoryError", "PeerLostError",
           "SystemCallError", "TimeoutError", "UnsupportedError", "VersionMismatchError"]
