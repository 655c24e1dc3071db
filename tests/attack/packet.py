# SPDX-License-Identifier: MIT
"""RoCEv2 packets as a stranger makes them: nothing here comes from the library under test."""
import socket
import struct
import zlib

PORT = 4791

# BTH opcodes of RC; the services differ in the upper three bits.
SEND_FIRST, SEND_MIDDLE, SEND_ONLY, WRITE_ONLY, READ_REQUEST, ACK = 0x00, 0x01, 0x04, 0x0A, 0x0C, 0x11
READ_RESPONSE_ONLY = 0x10
UC, UD = 0x20, 0x60
ECHO_REQUEST, ECHO_REPLY, INDEX = 0xC0, 0xC1, 0xC2

NAK = {0x60: "sequence error", 0x61: "invalid request", 0x62: "remote access error",
       0x63: "remote operational error", 0x64: "invalid RD request"}


def bth(opcode, qpn, psn, ack=True, pad=0):
    """A base transport header with the default P_Key."""
    return struct.pack(">BBHII", opcode, 0x40 | pad << 4, 0xFFFF, qpn & 0xFFFFFF, (psn & 0xFFFFFF) | ack << 31)


def reth(addr, rkey, length):
    return struct.pack(">QII", addr, rkey, length)


def aeth(syndrome, msn):
    return struct.pack(">I", syndrome << 24 | msn & 0xFFFFFF)


def deth(qkey, qpn):
    return struct.pack(">II", qkey, qpn & 0xFFFFFF)


def echo(asker, asked):
    return bth(ECHO_REQUEST, asked, 0, ack=False) + struct.pack(">IIQ", asker, asked, 1)


def icrc(src, dst, frame, port=PORT):
    """Over the IPv4 packet as Linux sends it from such a socket: identification 0, DF set."""
    size = len(frame) + 4
    masked = b"\xff" * 8
    masked += struct.pack(">BBHHHBBH", 0x45, 0xFF, 28 + size, 0, 0x4000, 0xFF, 17, 0xFFFF)
    masked += socket.inet_aton(src) + socket.inet_aton(dst)
    masked += struct.pack(">HHHH", port, PORT, 8 + size, 0xFFFF)
    masked += frame[:4] + b"\xff" + frame[5:]
    return struct.pack("<I", zlib.crc32(masked))
