#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""inject.py SOURCE DESTINATION TIMES FRAME...: sends packets to the RoCE port, as any user of the host can."""
import os
import socket
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
from packet import PORT, icrc  # noqa: E402


def main():
    source, destination, times, *frames = sys.argv[1:]
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER: PROBE, as the ICRC wants it
    s.bind((source, 0))
    port = s.getsockname()[1]
    for _ in range(int(times)):
        for frame in map(bytes.fromhex, frames):
            s.sendto(frame + icrc(source, destination, frame, port), (destination, PORT))


if __name__ == "__main__":
    main()
