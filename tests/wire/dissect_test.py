#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""dissect.sh must itself be seen to fail: malformed, cut and foreign captures."""

import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from icrc_check_test import HERE, load, pcap  # noqa: E402


def shortened(frame, payload, opcode):
    """An IPv4 frame whose UDP payload ends after this many bytes, with another BTH opcode."""
    frame = bytearray(frame[:42 + payload])
    struct.pack_into(">H", frame, 16, 28 + payload)
    struct.pack_into(">H", frame, 38, 8 + payload)
    frame[42] = opcode
    return bytes(frame)


class Dissect(unittest.TestCase):
    def setUp(self):
        self.frames = load("rxe_ucmatose.pcap")

    def status(self, data):
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(data)
            file.flush()
            done = subprocess.run([os.path.join(HERE, "dissect.sh"), file.name], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def fails(self, data, code, words):
        status, text = self.status(data)
        self.assertEqual(status, code, text)
        self.assertIn(words, text)

    def test_real_packets_pass(self):
        status, text = self.status(pcap(self.frames))
        self.assertEqual(status, 0, text)
        self.assertIn("%d RoCE packets dissected" % len(self.frames), text)

    def test_malformed(self):
        self.fails(pcap(self.frames + [shortened(self.frames[0], 20, 0x0A)]), 1, "malformed")

    def test_not_infiniband(self):
        self.fails(pcap(self.frames + [shortened(self.frames[0], 6, 0x04)]), 1, "not InfiniBand to tshark")

    def test_cut_short(self):
        self.fails(pcap([self.frames[0][:100]], lengths=[len(self.frames[0])]), 1, "cut short")

    def test_no_roce(self):
        self.fails(pcap([self.frames[0][:36] + b"\x00\x35" + self.frames[0][38:]]), 1, "0 RoCE packets")

    def test_no_capture(self):
        self.fails(b"no capture", 2, "tshark")


if __name__ == "__main__":
    unittest.main()
