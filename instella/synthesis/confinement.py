"""A process that takes from itself all it does not need: files, network, processes, memory.

Two means of Linux: resource limits, and a seccomp filter (x86-64) that ends the process at
the first system call that neither ``ALLOWED`` nor ``WITHOUT_BITS`` lets through. Neither can
be undone. ``unshare`` takes the network away as well where the system lets an ordinary user
do that.

Sources: man 2 seccomp, man 2 prctl, man 2 setrlimit; call numbers from the kernel's
arch/x86/entry/syscalls/syscall_64.tbl.
"""

import ctypes
import os
import platform
import resource
import signal
import struct

CPU_SECONDS = 10
MEMORY_BYTES = 512 << 20

ALLOWED = {
    "write": 1,
    "munmap": 11,
    "brk": 12,
    "rt_sigreturn": 15,
    "mremap": 25,
    "exit": 60,
    "futex": 202,
    "exit_group": 231,
}
"""Calls that ask nothing but memory, the open result pipe and the end."""

_PROT_EXEC = 4
# Advice 0 to 15 concerns the process's own memory; 100 and 101 take pages from the machine.
_BEYOND_OWN_MEMORY = 0xFFFFFFF0
WITHOUT_BITS = {
    "mmap": (9, _PROT_EXEC),
    "mprotect": (10, _PROT_EXEC),
    "madvise": (28, _BEYOND_OWN_MEMORY),
}
"""Calls allowed when their third argument has none of these bits."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_ARCH_X86_64 = 0xC000003E
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
# Offsets in struct seccomp_data: the call's number, the architecture, the third argument.
_NUMBER, _ARCH, _THIRD = 0, 4, 32
# Codes of the Berkeley packet filter: load a word, jump if equal, jump if a bit is set, return.
_LOAD, _EQUAL, _BITS, _RETURN = 0x20, 0x15, 0x45, 0x06

_LIBC = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def filter_code() -> bytes:
    """The filter's instructions, eight bytes each."""
    steps = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, _ARCH_X86_64, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _NUMBER),
    ]
    for number in sorted(ALLOWED.values()):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    for number, bits in sorted(WITHOUT_BITS.values()):
        steps += [
            _step(_EQUAL, number, 0, 4),
            _step(_LOAD, _THIRD),
            _step(_BITS, bits, 0, 1),
            _step(_RETURN, _KILL_PROCESS),
            _step(_RETURN, _ALLOW),
        ]
    steps.append(_step(_RETURN, _KILL_PROCESS))
    return b"".join(steps)


def _prctl(option: int, *values: object) -> bool:
    return _LIBC.prctl(option, *(*values, 0, 0, 0, 0)[:4]) == 0


def leave_network() -> None:
    """Enter a network of its own, empty, where the system allows it; else nothing happens."""
    _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def die_with_parent() -> None:
    """End this process when its parent ends, however that happens."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def confine(result: int) -> bool:
    """Give up all but memory, processor time and writing to the descriptor ``result``.

    Returns:
        whether the filter is in place too; False on another architecture, or where the
        system does not offer filters (some emulators).
    """
    die_with_parent()
    os.closerange(0, result)
    os.closerange(result + 1, 1 << 20)
    for limit, most in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(limit, (most, most))
    _prctl(_PR_SET_DUMPABLE, 0)
    if platform.machine() != "x86_64" or not _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        return False
    code = filter_code()
    wanted = _Filter(len(code) // 8, code)
    return _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(wanted))
