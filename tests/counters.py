#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads what running programs count, as src/host/registry.h says: the registry file names a System V segment.

counters.py traffic RUN_DIR   bytes that all programs sent, received and moved by themselves
"""
import ctypes
import glob
import os
import re
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAGIC, VERSION = 0x79617272, 6
HEAD = 24  # of the segment
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]


def names_of(text, macro):
    return re.findall(r"X\((\w+)\)", re.search(macro + r"\(X\)(.*?)\n\n", text, re.S).group(1))


def segment_of(path):
    """The segment's number; None: no such file."""
    with open(path, "rb") as f:
        head = f.read(40)
    if len(head) < 40 or struct.unpack_from("<2I", head) != (MAGIC, VERSION):
        return None
    return struct.unpack_from("<i", head, 32)[0]


class Counters:
    """Those of one process, while it lives and after."""

    def __init__(self, path):
        with open(os.path.join(ROOT, "src/host/counters.h"), encoding="ascii") as f:
            text = f.read()
        self.adapter_names = names_of(text, "HOST_ADAPTER_COUNTERS")
        self.qp_names = names_of(text, "HOST_QP_COUNTERS")
        self.path = path
        self.segment = segment_of(path)
        self.at = libc.shmat(self.segment, None, 0o10000) if self.segment is not None else None  # SHM_RDONLY
        if self.at in (None, ctypes.c_void_p(-1).value):
            self.at = None
            raise OSError(ctypes.get_errno(), "no counters in " + path)

    def __del__(self):
        if getattr(self, "at", None) is not None:
            libc.shmdt(self.at)

    def read(self, offset, size=8):
        return int.from_bytes(ctypes.string_at(self.at + offset, size), "little")

    def offset(self, name, qpn=None):
        """Where a counter lies in the segment; None: there is no such QP."""
        if qpn is None:
            return HEAD + 8 * self.adapter_names.index(name)
        for at in self.records():
            if self.read(at, 4) == qpn:
                return at + 8 + 8 * self.qp_names.index(name)
        return None

    def records(self):
        size = 8 * len(self.qp_names) + 8
        first = HEAD + 8 * len(self.adapter_names)
        return range(first, first + size * self.read(16, 4), size)

    def sum_of(self, name):
        """Over all queue pairs that there ever were, as far as their records were not used again."""
        return sum(self.read(at + 8 + 8 * self.qp_names.index(name)) for at in self.records())


def traffic(run):
    total = 0
    for path in glob.glob(run + "/net-*/adapter-*"):
        try:
            c = Counters(path)
        except OSError:
            continue  # gone meanwhile
        total += c.read(c.offset("tx_bytes")) + c.read(c.offset("rx_bytes")) + c.sum_of("direct_bytes")
    return total


if __name__ == "__main__":
    if sys.argv[1:2] != ["traffic"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    print(traffic(sys.argv[2]), end="")
