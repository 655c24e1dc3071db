# SPDX-License-Identifier: MIT
"""Messages of connection management as a stranger makes and reads them: byte by byte, after IBA volume 1, 12.6."""
import socket
import struct

from packet import PORT, SEND_ONLY, UD, bth, deth

REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR = range(0x10, 0x1B)
NAMES = "REQ MRA REJ REP RTU DREQ DREP SIDR_REQ SIDR_REP LAP APR".split()
TIMEOUT, INVALID_COMM_ID, INVALID_SERVICE_ID, STALE, CONSUMER = 4, 6, 8, 10, 28  # reasons of a REJ
GSI_QKEY = 0x80010000
BODY = 232


def gid(ip):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(ip)


def frame(attr, body, tid=1, qkey=GSI_QKEY):
    """A MAD of the class CM (7, version 2, method Send) from QP1 to QP1."""
    head = struct.pack(">BBBBHHQHHI", 1, 7, 2, 3, 0, 0, tid, attr, 0, 0)
    return bth(UD | SEND_ONLY, 1, 0, ack=False) + deth(qkey, 1) + head + body + bytes(BODY - len(body))


def ids(attr, local, remote, rest=b""):
    """Any message that begins with both ids."""
    return frame(attr, struct.pack(">II", local, remote) + rest)


def ip_header(src, dst, port=4000, version=0x40):
    return struct.pack(">BBH", 0, version, port) + bytes(12) + socket.inet_aton(src) + bytes(12) + socket.inet_aton(dst)


def req(src, dst, service, local, qpn, guid=0x0200C0FFEE000001, psn=1, priv=None, transport=0, mtu=3):
    body = struct.pack(">IIQQII", local, 0, service, guid, 0, 0)
    body += struct.pack(">IIII", qpn << 8 | 4, 4, 20 << 3 | transport << 1, psn << 8 | 20 << 3 | 7)
    body += struct.pack(">HBB", 0xFFFF, mtu << 4 | 7, 15 << 4)
    body += struct.pack(">HH", 0xFFFF, 0xFFFF) + gid(src) + gid(dst) + struct.pack(">IBBBB", 2, 0, 64, 8, 17 << 3)
    return frame(REQ, body + bytes(44) + (ip_header(src, dst) if priv is None else priv))


def rep(local, remote, qpn=7, guid=0x0200C0FFEE000001):
    return ids(REP, local, remote, struct.pack(">IIIIHHQ", 0, qpn << 8, 0, 1 << 8, 0x0404, 0x00E0, guid))


def rej(local, remote, reason, about=2):
    return ids(REJ, local, remote, struct.pack(">BBH", about << 6, 0, reason))


def mra(local, remote, about):
    return ids(MRA, local, remote, struct.pack(">BB", about << 6, 31 << 3))


def dreq(local, remote, qpn):
    return ids(DREQ, local, remote, struct.pack(">I", qpn << 8))


def tcp_service(port):
    return 0x01060000 | port


class Message:
    """What is read in one that was overheard; `tos` is the IP header's."""

    def __init__(self, mad, tos=0):
        body = mad[24:]
        self.attr, self.tos, self.body = int.from_bytes(mad[16:18], "big"), tos, body
        self.local, self.remote = struct.unpack(">II", body[:8])
        self.service, self.guid = struct.unpack(">QQ", body[8:24])
        self.reason = int.from_bytes(body[10:12], "big")
        self.tclass, self.ack_timeout = body[92], body[95] >> 3


class Sniffer:
    """Hears what goes by at an interface of ours, from now on."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        self.socket.bind((interface, 0x0003))
        self.socket.setblocking(False)
        self.heard, self.tos = [], {}

    def listen(self):
        """self.heard gets the messages, self.tos counts (sender, TOS) of all RoCE packets."""
        while True:
            try:
                p = self.socket.recv(65536)
            except BlockingIOError:
                return self.heard
            if len(p) < 40 or p[0] != 0x45 or p[9] != 17 or int.from_bytes(p[22:24], "big") != PORT:
                continue
            key = (socket.inet_ntoa(p[12:16]), p[1])
            self.tos[key] = self.tos.get(key, 0) + 1
            if p[28] == UD | SEND_ONLY and p[33:36] == b"\0\0\1" and len(p) == 28 + 20 + 256 + 4:
                self.heard.append(Message(p[48:], p[1]))

    def last(self, attr):
        return [m for m in self.listen() if m.attr == attr][-1]
