"""Errors a person may meet: one line that says what, where and what to do.

The command line prints ``str(error)`` on stderr and ends with ``error.exit_code``;
a traceback appears only with ``--debug``.
"""


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
