#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""join.py SM_LID PORT_GUID [PORT]: joins the port to the broadcast group of IPoIB, which OpenSM has made; by libibumad, as `anyrdma run` gives it.
No program that Debian packages joins a group and leaves it so."""
import ctypes
import ipaddress
import struct
import sys

GROUP = ipaddress.ip_address("ff12:401b:ffff::ffff:ffff").packed
SA, SET, MEMBER_RECORD, GSI_QPN, GSI_QKEY = 3, 2, 0x38, 1, 0x80010000
MGID, PORT_GID, JOIN_STATE = 1 << 0, 1 << 1, 1 << 16  # of the component mask
FULL_MEMBER = 1

umad = ctypes.CDLL("libibumad.so.3")
header = struct.pack(">BBBBHHQHHI", 1, SA, 2, SET, 0, 0, 1, MEMBER_RECORD, 0, 0)
rmpp_and_key = bytes(12 + 8)
question = header + rmpp_and_key + struct.pack(">HHQ", 0, 0, MGID | PORT_GID | JOIN_STATE)
port_gid = struct.pack(">QQ", 0xfe80 << 48, int(sys.argv[2], 0))
record = GROUP + port_gid + bytes(16) + bytes([FULL_MEMBER])

assert umad.umad_init() == 0
port = umad.umad_open_port(None, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
agent = umad.umad_register(port, SA, 2, 1, None)
message = ctypes.create_string_buffer(umad.umad_size() + 256)
message[umad.umad_size():umad.umad_size() + len(question + record)] = question + record
umad.umad_set_addr(message, int(sys.argv[1], 0), GSI_QPN, 0, ctypes.c_int(GSI_QKEY))
assert umad.umad_send(port, agent, message, 256, 1000, 3) == 0
length = ctypes.c_int(256)
assert umad.umad_recv(port, message, ctypes.byref(length), 10000) == agent
status, = struct.unpack_from(">H", message.raw, umad.umad_size() + 4)
mlid, = struct.unpack_from(">H", message.raw, umad.umad_size() + 56 + 36)
print(f"status 0x{status:x}, MLID 0x{mlid:x}")
sys.exit(0 if status == 0 and umad.umad_status(message) == 0 else 1)
