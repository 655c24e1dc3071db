#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""write_pkey.py LID PKEY: writes the first entry of the P_Key table of the port with this LID, as a subnet manager would; by
libibumad, as `anyrdma run` gives it. The entries behind it become empty."""
import ctypes
import struct
import sys

SUBN_LID_ROUTED, SET, PKEY_TABLE, LENGTH = 1, 2, 0x16, 256

umad = ctypes.CDLL("libibumad.so.3")
header = struct.pack(">BBBBHHQHHI", 1, SUBN_LID_ROUTED, 1, SET, 0, 0, 1, PKEY_TABLE, 0, 0)
message = ctypes.create_string_buffer(umad.umad_size() + LENGTH)
table = struct.pack(">H", int(sys.argv[2], 0))
message[umad.umad_size():umad.umad_size() + len(header)] = header
message[umad.umad_size() + 64:umad.umad_size() + 64 + len(table)] = table

assert umad.umad_init() == 0
port = umad.umad_open_port(None, 0)
agent = umad.umad_register(port, SUBN_LID_ROUTED, 1, 0, None)
umad.umad_set_addr(message, int(sys.argv[1], 0), 0, 0, 0)
assert umad.umad_send(port, agent, message, LENGTH, 1000, 3) == 0
length = ctypes.c_int(LENGTH)
assert umad.umad_recv(port, message, ctypes.byref(length), 10000) == agent
status, = struct.unpack_from(">H", message.raw, umad.umad_size() + 4)
sys.exit(0 if status == 0 and umad.umad_status(message) == 0 else 1)
