#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""write_route.py SWITCH_LID DLID PORT | SWITCH_LID top LID: writes into the switch with this LID by which port it sends what is for
DLID (255: by none), or up to which LID its table counts, as a subnet manager would; by libibumad, as `anyrdma run` gives it."""
import ctypes
import struct
import sys

SUBN_LID_ROUTED, GET, SET, SWITCH_INFO, FORWARDING, LENGTH, DATA, BLOCK = 1, 1, 2, 0x12, 0x19, 256, 64, 64
TOP = 6  # of SwitchInfo: LinearFDBTop

umad = ctypes.CDLL("libibumad.so.3")
assert umad.umad_init() == 0
door = umad.umad_open_port(None, 0)
agent = umad.umad_register(door, SUBN_LID_ROUTED, 1, 0, None)


def ask(method, attribute, modifier, data=b""):
    """The 64 bytes of the answer."""
    ask.tid += 1
    message = ctypes.create_string_buffer(umad.umad_size() + LENGTH)
    at = umad.umad_size()
    message[at:at + 24] = struct.pack(">BBBBHHQHHI", 1, SUBN_LID_ROUTED, 1, method, 0, 0, ask.tid, attribute, 0, modifier)
    message[at + DATA:at + DATA + len(data)] = data
    umad.umad_set_addr(message, int(sys.argv[1], 0), 0, 0, 0)
    assert umad.umad_send(door, agent, message, LENGTH, 1000, 3) == 0
    length = ctypes.c_int(LENGTH)
    assert umad.umad_recv(door, message, ctypes.byref(length), 10000) == agent
    assert umad.umad_status(message) == 0 and message.raw[at + 4:at + 6] == bytes(2)
    return message.raw[at + DATA:at + DATA + BLOCK]


ask.tid = 0
if sys.argv[2] == "top":
    info = bytearray(ask(GET, SWITCH_INFO, 0))
    struct.pack_into(">H", info, TOP, int(sys.argv[3], 0))
    ask(SET, SWITCH_INFO, 0, bytes(info))
else:
    lid = int(sys.argv[2], 0)
    block = bytearray(ask(GET, FORWARDING, lid // BLOCK))
    block[lid % BLOCK] = int(sys.argv[3], 0)
    ask(SET, FORWARDING, lid // BLOCK, bytes(block))
