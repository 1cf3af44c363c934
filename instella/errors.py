"""Errors a person may meet: one line that says what, where and what to do.

The command line prints ``str(error)`` on stderr and ends with ``error.exit_code``;
a traceback appears only with ``--debug``.
"""

# How a line of the command line's own errors begins.
ERROR_PREFIX = "instella: "


class KitError(Exception):
    """Base of every error the kit raises on purpose."""

    exit_code = 1


class BadUse(KitError):
    """A wrong option, recipe or configuration: the caller has to change it."""

    exit_code = 2


class Incomplete(KitError):
    """A run that is not finished yet, so the question has no answer."""

    exit_code = 3


class VerificationError(KitError):
    """Bytes that are not what they should be: data, an artifact or a manifest."""

    exit_code = 4


class MachineError(KitError):
    """The machine's doing and not the stage's: a signal, lack of memory or room, a dead engine.

    The status is that of an error of the operating system (EX_OSERR of sysexits.h).
    """

    exit_code = 71


class Stopped(KitError):
    """A stage that was asked to stop and kept a checkpoint; run again, it goes on from there.

    The status is that of a temporary failure (EX_TEMPFAIL of sysexits.h).
    """

    exit_code = 75
