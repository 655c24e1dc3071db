#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the ICRC of every RoCEv2 packet, and ICRC and VCRC of every InfiniBand packet, in pcap and pcapng captures.

A second opinion: it shares no code with anyrdma and takes the IP header, identification included, as
captured. Exit status 0 when every packet is right, 1 when one is wrong, could not be checked, or none was there.
"""

import argparse
import collections
import ipaddress
import struct
import sys
import zlib

ROCE_PORT = 4791
SMALLEST = 16           # BTH and ICRC
LARGEST = 4096 + 64     # the largest path MTU and more headers than any packet has
ETHERNET, RAW, SLL, SLL2 = 1, 101, 113, 276
ERF, ERF_INFINIBAND = 197, 21
IPV4, IPV6 = 0x0800, 0x86DD
VLANS = (0x8100, 0x88A8)

OFFLOADS = ("offloads were on while capturing: a datagram holds several RoCE packets, so this is not what goes "
            "over the wire; capture again after: ethtool -K IFACE tx-udp-segmentation off gso off gro off "
            "(or pass --gso to check the packets inside)")


class Malformed(Exception):
    pass


# --- capture files: each reader yields (linktype, captured bytes, length on the wire) ---

def frames(data):
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        return pcapng_frames(data)
    return pcap_frames(data)


def pcap_frames(data):
    for order in "<>":
        if len(data) >= 24 and struct.unpack_from(order + "I", data)[0] in (0xA1B2C3D4, 0xA1B23C4D):
            break
    else:
        raise Malformed("neither pcap nor pcapng")
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    at = 24
    while at + 16 <= len(data):
        caplen, length = struct.unpack_from(order + "II", data, at + 8)
        yield link, data[at + 16:at + 16 + caplen], length
        at += 16 + caplen


def pcapng_frames(data):
    order, links, at = "<", [], 0
    while at + 12 <= len(data):
        if data[at:at + 4] == b"\x0a\x0d\x0d\x0a":      # section header: byte order and interfaces start anew
            order = "<" if data[at + 8:at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            links = []
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < 12 or at + size > len(data):
            raise Malformed("block of %d bytes at offset %d" % (size, at))
        body = data[at + 8:at + size - 4]
        if kind == 1:                                   # interface description: link type, snap length
            links.append(struct.unpack_from(order + "HxxI", body))
        elif kind == 6:                                 # enhanced packet
            interface, _, _, caplen, length = struct.unpack_from(order + "5I", body)
            yield links[interface][0], body[20:20 + caplen], length
        elif kind == 3:                                 # simple packet: of the first interface
            length, = struct.unpack_from(order + "I", body)
            link, snaplen = links[0]
            yield link, body[4:4 + min(length, snaplen or length)], length
        at += size


# --- from frame to UDP ---

def ip_of(link, frame):
    """The EtherType and the bytes behind the link header."""
    if link == RAW:
        return (IPV4 if frame[0] >> 4 == 4 else IPV6), frame
    place, at = {ETHERNET: (12, 14), SLL: (14, 16), SLL2: (0, 20)}[link]
    kind, = struct.unpack_from(">H", frame, place)
    while kind in VLANS:
        kind, = struct.unpack_from(">H", frame, at + 2)
        at += 4
    return kind, frame[at:]


Datagram = collections.namedtuple("Datagram", "src dst ip ip_id udp payload")


def roce_datagram(link, frame, length):
    """The frame's UDP datagram to port 4791, or None when it is something else."""
    try:
        kind, ip = ip_of(link, frame)
        if kind == IPV4 and ip[9] == 17:
            at = (ip[0] & 15) * 4
            total, ip_id, fragment = struct.unpack_from(">HHH", ip, 2)
            src, dst = ip[12:16], ip[16:20]
        elif kind == IPV6 and ip[6] == 17:
            at, ip_id, fragment = 40, None, 0
            total = 40 + struct.unpack_from(">H", ip, 4)[0]
            src, dst = ip[8:24], ip[24:40]
        else:
            return None
        if fragment & 0x1FFF:
            return None                                 # a later fragment; the first one is reported
        port, udp_len = struct.unpack_from(">HH", ip, at + 2)
    except (struct.error, IndexError):
        return None
    if port != ROCE_PORT:
        return None
    if fragment & 0x2000:
        raise Malformed("IP fragment")
    if len(frame) < length and len(ip) < total:
        raise Malformed("cut by the snap length, %d of %d bytes captured" % (len(frame), length))
    if at + udp_len != total or total > len(ip):
        raise Malformed("UDP length %d does not fit IP length %d, frame %d" % (udp_len, total, length))
    return Datagram(ipaddress.ip_address(src), ipaddress.ip_address(dst), ip[:at], ip_id, ip[at:at + 8],
                    ip[at + 8:total])


# --- the ICRC ---

def icrc(datagram, payload, step=0):
    """The ICRC bytes of a packet with this payload in this envelope, step packets later in a GSO batch."""
    ip, udp, bth = bytearray(datagram.ip), bytearray(datagram.udp), bytearray(payload[:12])
    struct.pack_into(">H", udp, 4, 8 + len(payload))
    if datagram.ip_id is None:
        ip[0] |= 0x0F                                   # traffic class, flow label
        ip[1:4] = b"\xff\xff\xff"
        struct.pack_into(">H", ip, 4, 8 + len(payload))
        ip[7] = 0xFF                                    # hop limit
    else:
        ip[1] = 0xFF                                    # type of service
        struct.pack_into(">HH", ip, 2, len(ip) + 8 + len(payload), (datagram.ip_id + step) & 0xFFFF)
        ip[8] = 0xFF                                    # time to live
        ip[10:12] = b"\xff\xff"                         # header checksum
    udp[6:8] = b"\xff\xff"                              # checksum
    bth[4] = 0xFF                                       # FECN, BECN, reserved
    crc = zlib.crc32(b"\xff" * 8 + ip + udp + bth)
    return struct.pack("<I", zlib.crc32(payload[12:-4], crc))


def right(datagram, payload, step=0):
    return len(payload) >= SMALLEST and icrc(datagram, payload, step) == payload[-4:]


def segments(datagram):
    """The RoCE packets a GSO or GRO batch holds, as far as can be told; one when it is none.

    All but the last have one size: the one at which the first packet's ICRC comes out right."""
    payload = datagram.payload
    for size in range(SMALLEST, min(LARGEST, len(payload) - SMALLEST) + 1, 4):
        if right(datagram, payload[:size]):
            return [payload[at:at + size] for at in range(0, len(payload), size)]
    return [payload]


def verdict(datagram, gso):
    """(what to count it as, RoCE packets in it, what to print)"""
    payload = datagram.payload
    if right(datagram, payload):
        return "good", 1, ""
    if len(payload) < SMALLEST:
        return "bad", 1, "%d bytes are too short for a RoCE packet" % len(payload)
    parts = segments(datagram)
    if len(parts) == 1 and len(payload) <= LARGEST:
        return "bad", 1, "ICRC %s, should be %s" % (payload[-4:].hex(), icrc(datagram, payload).hex())
    if not gso:
        return "batch", len(parts), "%d bytes, several RoCE packets in one datagram" % len(payload)
    wrong = [str(i) for i, part in enumerate(parts) if not right(datagram, part, i)]
    if wrong:
        return "bad", len(parts), "batch of %d RoCE packets, wrong ICRC in number %s" % (len(parts), ", ".join(wrong))
    return "good", len(parts), ""


# --- InfiniBand: LRH to VCRC in an ERF record ---

def vcrc(data):
    """CRC-16 of IBA 7.8.2, bit by bit."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xD008 if crc & 1 else 0)
    return struct.pack("<H", crc ^ 0xFFFF)


def iba_icrc(packet):
    """The ICRC bytes of a packet, LRH to pad: what changes on the way is taken as ones."""
    data, at = bytearray(packet), 8
    data[0] |= 0xF0                                     # VL
    if data[1] & 3 == 3:                                # GRH: traffic class, flow label, hop limit
        data[at] |= 0x0F
        data[at + 1:at + 4] = b"\xff\xff\xff"
        data[at + 7] = 0xFF
        at += 40
    data[at + 4] = 0xFF                                 # FECN, BECN, reserved
    return struct.pack("<I", zlib.crc32(data))


def infiniband_packet(frame, length):
    """The packet inside an ERF record."""
    if len(frame) < length:
        raise Malformed("cut by the snap length, %d of %d bytes captured" % (len(frame), length))
    kind, flags, rlen, _, wlen = struct.unpack_from(">8xBBHHH", frame)
    if kind != ERF_INFINIBAND or rlen != len(frame) or wlen != len(frame) - 16:
        raise Malformed("not an ERF record of InfiniBand: type %d, %d of %d bytes" % (kind, rlen, len(frame)))
    return frame[16:]


def infiniband_verdict(packet):
    if len(packet) < 8 + 12 + 6 or packet[1] & 3 < 2 or (packet[1] & 3 == 3 and len(packet) < 8 + 40 + 12 + 6):
        return "bad", 1, "%d bytes are too short for an InfiniBand packet" % len(packet)
    words = struct.unpack_from(">H", packet, 4)[0] & 0x7FF
    if 4 * words != len(packet) - 2:
        return "bad", 1, "PktLen says %d bytes, there are %d" % (4 * words, len(packet) - 2)
    if vcrc(packet[:-2]) != packet[-2:]:
        return "bad", 1, "VCRC %s, should be %s" % (packet[-2:].hex(), vcrc(packet[:-2]).hex())
    if iba_icrc(packet[:-6]) != packet[-6:-2]:
        return "bad", 1, "ICRC %s, should be %s" % (packet[-6:-2].hex(), iba_icrc(packet[:-6]).hex())
    return "good", 1, ""


def judge(link, frame, length, options):
    """(which packet, what to count it as, packets in it, what to print), or None: not for us."""
    if link == ERF:
        packet = infiniband_packet(frame, length)
        lids = struct.unpack_from(">HxxH", packet + bytes(8), 2)
        return ("LID %d -> %d" % (lids[1], lids[0]), *infiniband_verdict(packet))
    datagram = roce_datagram(link, frame, length)
    if datagram is None:
        return None
    which = "%s -> %s, opcode %s" % (datagram.src, datagram.dst, datagram.payload[:1].hex() or "none")
    return (which, *verdict(datagram, options.gso))


# --- reporting ---

def check_file(path, options):
    count, family = collections.Counter(), "RoCE"
    with open(path, "rb") as file:
        data = file.read()
    for number, (link, frame, length) in enumerate(frames(data), 1):
        if link not in (ETHERNET, RAW, SLL, SLL2, ERF):
            raise Malformed("link type %d is not known here" % link)
        where = "%s: frame %d" % (path, number)
        family = "InfiniBand" if link == ERF else family
        try:
            judged = judge(link, frame, length, options)
            if judged is None:
                continue
            which, kind, packets, text = judged
            where += ", " + which
        except Malformed as error:
            kind, packets, text = "bad", 1, str(error)
        count[kind] += packets
        if text:
            print("%s: %s" % (where, text))
    total = sum(count.values())
    print("%s: %d %s packets, %d right, %d wrong%s" % (path, total, family, count["good"], count["bad"],
          ", %d in batches not checked" % count["batch"] if count["batch"] else ""))
    if count["batch"]:
        print("%s: %s" % (path, OFFLOADS))
    return count["bad"] + count["batch"] == 0 and (total > 0 or options.allow_empty)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allow-empty", action="store_true", help="a capture without RoCE packets is right, too")
    parser.add_argument("--gso", action="store_true",
                        help="look into GSO/GRO batches; their packets are numbered as the kernel numbers them")
    parser.add_argument("captures", nargs="+")
    options = parser.parse_args()
    good = True
    for path in options.captures:
        try:
            good &= check_file(path, options)
        except (Malformed, OSError, struct.error, IndexError) as error:
            print("%s: %s" % (path, error or "broken capture"))
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
