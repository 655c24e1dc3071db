#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""migrate.py SOURCE TARGET URI SECONDS: moves a QEMU guest to another process, asked over their QMP sockets.

Ends well when the source says "completed" and the guest runs in the target.
"""
import json
import socket
import sys
import time


class Qmp:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw")
        self.file.readline()  # the greeting
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "error" in answer:
                sys.exit(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]


def main():
    source, target, uri, seconds = sys.argv[1:]
    qmp = Qmp(source)
    qmp.ask("migrate", uri=uri)
    deadline = time.monotonic() + float(seconds)
    status = ""
    while status not in ("completed", "failed") and time.monotonic() < deadline:
        time.sleep(0.05)
        status = qmp.ask("query-migrate").get("status")
    print("migration:", status)
    running = Qmp(target).ask("query-status")["running"]
    print("runs there:", running)
    return 0 if status == "completed" and running else 1


if __name__ == "__main__":
    sys.exit(main())
