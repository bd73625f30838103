"""The exceptions of tutti: one class for each result code of tutti.h. The text is the library's sentence."""

import builtins


class Error(Exception):
    """The base of all exceptions of tutti. `code` is the number of the result in tutti.h."""

    code = -1


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong. Nothing was sent, and the communicator is as before."""

    code = 1


class InvalidUsageError(Error):
    """The call is not legal in this state. Nothing was sent, and the communicator is as before."""

    code = 2


class SystemCallError(Error):
    """The operating system refused something."""

    code = 3


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory."""

    code = 4


class InternalError(Error):
    """A bug in tutti."""

    code = 5


class UnsupportedError(Error):
    """The call is legal, but not on this machine or in this build."""

    code = 6


class PeerLostError(Error, ConnectionError):
    """A rank's process has died. Only shrink, abort and close are legal now."""

    code = 7


class TimeoutError(Error, builtins.TimeoutError):  # pylint: disable=redefined-builtin
    """The deadline passed. Only shrink, abort and close are legal now."""

    code = 8


class MismatchError(Error):
    """Ranks made different calls. Only shrink, abort and close are legal now."""

    code = 9


class AbortedError(Error):
    """This or another rank aborted the communicator."""

    code = 10


class VersionMismatchError(Error):
    """A peer runs another version of tutti."""

    code = 11


class InProgressError(Error):
    """The work is not finished yet."""

    code = 12


CLASSES = {kind.code: kind for kind in Error.__subclasses__()}
