#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hostile_program.py DIRECTORY HOST LID VICTIM_HOST VICTIM_LID: a program of a fabric's host that lies to the fabric. It attaches as
the library does, and puts packets into its trunk that are another's, or nobody's: how many must be refused is what it says at the
end. Nothing here comes from the library."""
import fcntl
import mmap
import os
import socket
import struct
import sys
import termios
import time

MAGIC, VERSION, SLOT, NOBODYS_SLOT = 0x61747461, 3, 400, 401
HELLO = struct.Struct("<IIII64s")
WELCOME = struct.Struct("<IIiIQQII1024s")   # and the adapters behind it
ADAPTER = struct.Struct("<20sIQQ9II")
RING, DATA, LINE = 4096 + (2 << 20), 2 << 20, 64
HEAD = struct.Struct("<IIHHBBBBI16s16s12x")  # of a packet in the ring
BTH = struct.Struct(">BBHII")
UD_SEND, RC_SEND, FULL_DEFAULT = 0x64, 0x04, 0xFFFF
SMI, GSI, GSI_QKEY = 0, 1, 0x80010000
LISTEN = struct.Struct("<BB6xQ16s")
EACH, LISTENERS, LISTENERS_MAX, STRANGERS = 500, 20000, 1024, 200

where, host, lid, victim_host, victim_lid = sys.argv[1:6]
lid, victim_lid = int(lid), int(victim_lid)
os.chdir(where)


def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("attach")
    return s


def attach(name, slot):
    """The socket, the descriptors that were passed, and the index of the host's first port."""
    s = connect()
    s.send(HELLO.pack(MAGIC, VERSION, slot, 0, name.encode()))
    data, fds, _, _ = socket.recv_fds(s, 65536, 8)
    welcome = WELCOME.unpack_from(data)
    assert welcome[:3] == (MAGIC, VERSION, 0), welcome[:3]
    return s, fds, ADAPTER.unpack_from(data, WELCOME.size + (-WELCOME.size % 8))[4]


class Trunk:
    def __init__(self, s, fd):
        self.socket, self.mem, self.head = s, mmap.mmap(fd, 0), 0  # behind the rings: tallies

    def tail(self):
        return struct.unpack_from("<Q", self.mem, 64)[0]

    def put(self, packet, port, slid, dlid, grh=None, sl=0):
        room = LINE + (len(packet) + LINE - 1) // LINE * LINE
        at = self.head % DATA
        if at + room > DATA:
            self.put_head(at, struct.pack("<I", 0xFFFFFFFF))
            self.head += DATA - at
            at = 0
        while self.head + room - self.tail() > DATA:
            self.ring()
        self.put_head(at, HEAD.pack(len(packet), port, slid, dlid, sl, grh is not None, 0, 64, 0, grh or b"", bytes(16)))
        self.mem[4096 + at + LINE:4096 + at + LINE + len(packet)] = packet
        self.head += room
        self.mem[:8] = struct.pack("<Q", self.head)
        self.ring()

    def put_head(self, at, head):
        self.mem[4096 + at:4096 + at + len(head)] = head

    def ring(self):
        if struct.unpack_from("<I", self.mem, 128)[0]:
            self.mem[128:132] = bytes(4)
            self.socket.send(b"r")


def bth(opcode, dqpn, pkey=FULL_DEFAULT):
    return BTH.pack(opcode, 0, pkey, dqpn, 0)


def datagram(dqpn, sqpn, body=bytes(8), pkey=FULL_DEFAULT, qkey=0x11111111):
    return bth(UD_SEND, dqpn, pkey) + struct.pack(">II", qkey, sqpn) + body


def mad(mgmt_class, version, method, attribute, modifier=0, data=b""):
    head = struct.pack(">BBBBHHQHHI", 1, mgmt_class, version, method, 0, 0, 7, attribute, 0, modifier)
    return (head + data).ljust(256, b"\0")


def ours(slot):
    return slot << 15 | 77


s, fds, port = attach(host, SLOT)
victims_port = attach(victim_host, 0)[2]
trunk = Trunk(s, fds[-1])
victim_qp = ours(1)
good = datagram(victim_qp, ours(SLOT))
path = struct.pack(">8x16s16sHH", bytes(16), bytes(16), victim_lid, lid)  # part of a PathRecord
lies = [
    (good, port, victim_lid, victim_lid),                                             # another's LID
    (good, port, 0, victim_lid), (good, port, 0xFFFF, victim_lid), (good, port, 0xC001, victim_lid),
    (good, victims_port, victim_lid, lid), (good, 0xFFFFFFFF, lid, victim_lid),       # another's port, none
    (good, 0, lid, victim_lid),
    (datagram(victim_qp, ours(SLOT), pkey=0x8123), port, lid, victim_lid),            # a partition it is not in
    (bth(RC_SEND, victim_qp, 0x7123) + bytes(8), port, lid, victim_lid),
    (datagram(victim_qp, victim_qp), port, lid, victim_lid),                          # another's queue pair
    (datagram(victim_qp, ours(NOBODYS_SLOT)), port, lid, victim_lid),
    (good, port, lid, victim_lid, b"\xfe\x80" + bytes(13) + b"\1"),                   # another's GID
    (good[:8], port, lid, victim_lid), (good + b"x", port, lid, victim_lid), (b"", port, lid, victim_lid),
    # Management of the victim's port: disable it, reset its counters, take its LID.
    (datagram(SMI, SMI, mad(1, 1, 2, 0x15, 1), qkey=0), port, lid, victim_lid),
    (datagram(SMI, SMI, mad(0x81, 1, 2, 0x15, 1), qkey=0), port, lid, 0xFFFF),
    (datagram(GSI, SMI, mad(1, 1, 2, 0x15, 1), qkey=0), port, lid, victim_lid),
    (datagram(GSI, GSI, mad(1, 1, 2, 0x15, 1), qkey=GSI_QKEY), port, lid, victim_lid),
    (datagram(GSI, GSI, mad(4, 1, 2, 0x12, 0, b"\xff" * 200), qkey=GSI_QKEY), port, lid, victim_lid),
    (datagram(GSI, GSI, mad(3, 2, 0x81, 0x35, 0, bytes(40) + path), qkey=GSI_QKEY), port, lid, victim_lid),  # a path
    (datagram(GSI, GSI, mad(3, 2, 0x92, 0x35, 0, bytes(40) + path), qkey=GSI_QKEY), port, lid, victim_lid),
    (datagram(GSI, GSI, mad(7, 2, 3, 0x15, 0, struct.pack(">II", 1 << 23 | 5, 1 << 23 | 5)), qkey=GSI_QKEY),
     port, lid, victim_lid),                                                          # a DREQ in another's name
]
for _ in range(EACH):
    for lie in lies:
        trunk.put(*lie)
while trunk.tail() != trunk.head:
    trunk.ring()

# Tallies of ways that are not there, of others, and of more than can be; each look at counters reads them.
trunk.mem[2 * RING:] = os.urandom(len(trunk.mem) - 2 * RING)
for i, (at, frm, to) in enumerate([(port, lid, victim_lid), (victims_port, victim_lid, lid), (port, victim_lid, lid), (port, lid, 0xFFFF)]):
    place = 2 * RING + LINE * (1 + i)
    trunk.mem[place:place + LINE] = struct.pack("<QQQQQ24x", at << 36 | frm << 16 | to, 1 << 50, 1 << 60, 5, 1 << 40)
trunk.mem[2 * RING:2 * RING + 4] = struct.pack("<I", 0xFFFFFFFF)

for i in range(LISTENERS):
    s.send(LISTEN.pack(ord("l"), 1, 0x0000000001060000 | i % 65536 | i // 65536 << 32, bytes(16)))
while struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0]:
    time.sleep(0.001)  # what it has not read yet, it will not read of a program that it cuts off
for i in range(STRANGERS):
    stranger = connect()
    stranger.send(os.urandom(1 + i * 7 % 200))
    stranger.close()
trunk.mem[:8] = struct.pack("<Q", trunk.head + 12345)  # what it cannot have written
s.send(b"r")
while True:
    try:
        if not s.recv(65536):
            break
    except ConnectionError:
        break
print(f"{EACH * len(lies)} packets, {LISTENERS - LISTENERS_MAX} listeners, {STRANGERS} strangers")
