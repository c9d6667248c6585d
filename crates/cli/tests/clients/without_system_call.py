"""Runs a command in which some system calls fail with EPERM, as under the filter of a systemd unit.

    without_system_call.py NUMBER[,NUMBER...] COMMAND...
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM

numbers = [int(number) for number in sys.argv[1].split(",")]
# The number of the call is the first field of the data.
steps = [(LOAD, 0, 0, 0)]
for number in numbers:
    steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL)]
steps.append((RETURN, 0, 0, ALLOW))
code = b"".join(struct.pack("HBBI", *step) for step in steps)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(steps), code)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
filtered = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
assert filtered == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[2], sys.argv[2:])
