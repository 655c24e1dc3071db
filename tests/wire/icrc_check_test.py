#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checker must itself be seen to fail: damaged, cut, batched and foreign captures."""

import os
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKER = os.path.join(HERE, "icrc_check.py")
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import icrc_check  # noqa: E402

PCAPS = os.path.join(HERE, "pcaps")


def load(name):
    with open(os.path.join(PCAPS, name), "rb") as file:
        return [frame for _, frame, _ in icrc_check.frames(file.read())]


def pcap(frames, link=1, order="<", lengths=None):
    out = struct.pack(order + "IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for i, frame in enumerate(frames):
        out += struct.pack(order + "IIII", 0, 0, len(frame), lengths[i] if lengths else len(frame)) + frame
    return out


def pcapng(frames, order="<"):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        size = len(body) + 12
        return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)
    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack(order + "HHI", 1, 0, 0))
    for i, frame in enumerate(frames):
        if i % 2:
            out += block(3, struct.pack(order + "I", len(frame)) + frame)
        else:
            out += block(6, struct.pack(order + "5I", 0, 0, 0, len(frame), len(frame)) + frame)
    return out


def batch(frame, sizes):
    """A GSO batch in the envelope of an IPv4 frame: packets of these sizes, numbered as the kernel does."""
    ip, udp = bytearray(frame[14:34]), bytearray(frame[34:42])
    envelope = icrc_check.Datagram(None, None, bytes(ip), struct.unpack_from(">H", ip, 4)[0], bytes(udp), b"")
    payload = b""
    for i, size in enumerate(sizes):
        packet = bytes([7, 0, 255, 255, 0, 0, 0, 17, 0, 0, 0, i]) + os.urandom(size - 16)
        payload += packet + icrc_check.icrc(envelope, packet + bytes(4), i)
    struct.pack_into(">H", ip, 2, 28 + len(payload))
    struct.pack_into(">H", udp, 4, 8 + len(payload))
    return frame[:14] + bytes(ip) + bytes(udp) + payload


def flipped(frame, at, bit=1):
    return frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1:]


class Checker(unittest.TestCase):
    def setUp(self):
        self.frames = load("rxe_ucmatose.pcap")         # nothing but RoCE over IPv4

    def run_on(self, data, *options):
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(data)
            file.flush()
            done = subprocess.run([sys.executable, CHECKER, *options, file.name], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def passes(self, data, count, *options):
        status, text = self.run_on(data, *options)
        self.assertEqual(status, 0, text)
        self.assertIn("%d RoCE packets, %d right, 0 wrong" % (count, count), text)

    def fails(self, data, *words):
        status, text = self.run_on(data)
        self.assertEqual(status, 1, text)
        self.assertNotIn("Traceback", text)
        for word in words:
            self.assertIn(word, text)

    def test_every_container_is_read(self):
        count = len(self.frames)
        for order in "<>":
            self.passes(pcap(self.frames, order=order), count)
            self.passes(pcapng(self.frames, order=order), count)
        self.passes(pcap([frame[14:] for frame in self.frames], link=101), count)
        self.passes(pcap([bytes(14) + frame[12:] for frame in self.frames], link=113), count)
        self.passes(pcap([frame[12:14] + bytes(18) + frame[14:] for frame in self.frames], link=276), count)
        self.passes(pcap([frame[:12] + b"\x81\x00\x00\x05" + frame[12:] for frame in self.frames]), count)

    def test_damage_is_found(self):
        for at in (18, 26, 30, 35, 42, 54, len(self.frames[2]) - 1):   # IP id, addresses, port, BTH, payload, ICRC
            damaged = self.frames[:2] + [flipped(self.frames[2], at)] + self.frames[3:]
            self.fails(pcap(damaged), "frame 3", " 1 wrong")

    def test_damage_is_found_ipv6(self):
        frames = load("rxe_rping_ipv6.pcap")
        self.fails(pcap([flipped(frames[0], 14 + 39)]), " 1 wrong")

    def test_what_routers_change_is_not_covered(self):
        frame = self.frames[0]
        for at in (15, 22, 24, 40, 46):                 # type of service, TTL, two checksums, BTH's masked byte
            frame = flipped(frame, at)
        self.passes(pcap([frame]), 1)

    def test_batches_are_named(self):
        frame = batch(self.frames[0], [116, 116, 76])
        self.fails(pcap([frame]), "offloads were on", "3 in batches")
        self.passes(pcap([frame]), 3, "--gso")
        status, text = self.run_on(pcap([flipped(frame, 42 + 116 + 20)]), "--gso")
        self.assertEqual(status, 1)
        self.assertIn("wrong ICRC in number 1", text)

    def test_cut_packets_are_not_passed(self):
        self.fails(pcap([self.frames[0][:100]], lengths=[len(self.frames[0])]), "cut by the snap length")

    def test_fragments_are_not_passed(self):
        self.fails(pcap([flipped(self.frames[0], 20, 0x20)]), "IP fragment")

    def test_short_packets_are_not_passed(self):
        frame = bytearray(self.frames[0][:42 + 8])
        struct.pack_into(">H", frame, 16, 36)
        struct.pack_into(">H", frame, 38, 16)
        self.fails(pcap([bytes(frame)]), "too short")

    def test_nothing_found_is_a_failure(self):
        self.fails(pcap([]), "0 RoCE packets")
        self.passes(pcap([]), 0, "--allow-empty")
        self.passes(pcap([self.frames[0][:30]]), 0, "--allow-empty")

    # The example of IBA 7.8.1, with its VCRC.
    EXAMPLE = bytes.fromhex("7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a050000000e"
                            "bb884d85fd5cfba4728bc0690ed40000" "9625b75a" "45fa")

    @staticmethod
    def erf(packet):
        return bytes(8) + struct.pack(">BBHHH", 21, 4, 16 + len(packet), 0, len(packet)) + packet

    def test_infiniband_is_checked(self):
        status, text = self.run_on(pcap([self.erf(self.EXAMPLE)], link=197))
        self.assertEqual(status, 0, text)
        self.assertIn("1 InfiniBand packets, 1 right, 0 wrong", text)
        damaged = [self.erf(flipped(self.EXAMPLE, at)) for at in range(len(self.EXAMPLE))]
        self.fails(pcap(damaged, link=197), " 0 right, %d wrong" % len(damaged))

    def test_infiniband_icrc_is_checked_under_a_right_vcrc(self):
        damaged = flipped(self.EXAMPLE, 30)[:-2]
        self.fails(pcap([self.erf(damaged + icrc_check.vcrc(damaged))], link=197), "ICRC 9625b75a, should be")
        other_vl = flipped(self.EXAMPLE, 0, 0x10)[:-2]   # VLs change from hop to hop
        status, text = self.run_on(pcap([self.erf(other_vl + icrc_check.vcrc(other_vl))], link=197))
        self.assertEqual(status, 0, text)

    def test_infiniband_short_and_foreign_records_are_not_passed(self):
        short = [self.erf(self.EXAMPLE[:size]) for size in range(len(self.EXAMPLE))]
        self.fails(pcap(short, link=197), " 0 right, %d wrong" % len(short))
        self.fails(pcap([self.EXAMPLE], link=197), "not an ERF record")

    def test_other_files_are_refused(self):
        self.fails(b"not a capture at all, but long enough", "neither pcap nor pcapng")
        self.fails(b"")
        self.fails(pcapng(self.frames)[:100])
        self.fails(pcap(self.frames, link=147), "link type 147")


if __name__ == "__main__":
    unittest.main()
