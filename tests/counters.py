#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads what running programs count: the record of each (src/host/process.h) names a System V segment (src/host/registry.h).

counters.py traffic RUN_DIR   bytes that all programs sent, received and moved by themselves
"""
import ctypes
import glob
import os
import re
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD, RECORD_VERSION, SLOTS = struct.Struct("<2IiI16s"), 1, 512
HEAD, HEAD_LEN = struct.Struct("<4I"), 24  # of the segment: magic, version, pid, slot
MAGIC, VERSION = 0x79617272, 7
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]


def names_of(text, owner):
    """The counters of the list of probes, in its order, as src/host/counters.h lays them out."""
    return re.findall(rf"\b{owner}_(?:COUNTER|SUM)\((\w+)\)", re.search(r"#define PROBES\(P\)(.*?)\n\n", text, re.S)[1])


def records_of(path):
    """(slot, pid, segment) of each record in a file of processes, of the living and of the dead."""
    with open(path, "rb") as f:
        data = f.read(SLOTS * RECORD.size)
    for slot in range(1, len(data) // RECORD.size):
        version, pid, segment, _, _ = RECORD.unpack_from(data, slot * RECORD.size)
        if version == RECORD_VERSION:
            yield slot, pid, segment


def living(run):
    """The counters of all processes that live and whose record is there."""
    for path in glob.glob(run + "/net-*/processes-*"):
        for slot, pid, segment in records_of(path):
            try:
                yield Counters(slot, pid, segment)
            except OSError:
                pass  # dead, or dies


class Counters:
    """Those of one process, while it lives and after."""

    def __init__(self, slot, pid, segment):
        with open(os.path.join(ROOT, "src/observe/probe.h"), encoding="ascii") as f:
            text = f.read()
        self.adapter_names = names_of(text, "ADAPTER")
        self.qp_names = names_of(text, "QP")
        self.slot, self.pid, self.segment = slot, pid, segment
        self.at = libc.shmat(segment, None, 0o10000)  # SHM_RDONLY
        if self.at in (None, ctypes.c_void_p(-1).value):
            self.at = None
            raise OSError(ctypes.get_errno(), f"no counters of process {pid}")
        if HEAD.unpack(ctypes.string_at(self.at, HEAD.size)) != (MAGIC, VERSION, pid, slot):
            raise OSError(0, f"segment {segment} is not of process {pid}")

    def __del__(self):
        if getattr(self, "at", None) is not None:
            libc.shmdt(self.at)

    def read(self, offset, size=8):
        return int.from_bytes(ctypes.string_at(self.at + offset, size), "little")

    def offset(self, name, qpn=None):
        """Where a counter lies in the segment; None: there is no such QP."""
        if qpn is None:
            return HEAD_LEN + 8 * self.adapter_names.index(name)
        for at in self.records():
            if self.read(at, 4) == qpn:
                return at + 8 + 8 * self.qp_names.index(name)
        return None

    def records(self):
        size = 8 * len(self.qp_names) + 8
        first = HEAD_LEN + 8 * len(self.adapter_names)
        return range(first, first + size * self.read(16, 4), size)

    def sum_of(self, name):
        """Over all queue pairs that there ever were, as far as their records were not used again."""
        return sum(self.read(at + 8 + 8 * self.qp_names.index(name)) for at in self.records())


def traffic(run):
    return sum(c.read(c.offset("tx_bytes")) + c.read(c.offset("rx_bytes")) + c.sum_of("direct_bytes") for c in living(run))


if __name__ == "__main__":
    if sys.argv[1:2] != ["traffic"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    print(traffic(sys.argv[2]), end="")
