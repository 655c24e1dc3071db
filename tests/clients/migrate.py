#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""migrate.py SOURCE TARGET URI SECONDS: moves a QEMU guest to another process, asked over their QMP sockets.

Ends well when the source says "completed" and the guest runs in the target; it is given up when nothing has moved for
SECONDS. The guest may stand still for as long as it takes: on a busy machine what it writes meanwhile would else have to
be sent again for ever.
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


DOWNTIME_MS = 60000


def main():
    source, target, uri, seconds = sys.argv[1:]
    qmp = Qmp(source)
    qmp.ask("migrate-set-parameters", **{"downtime-limit": DOWNTIME_MS})
    qmp.ask("migrate", uri=uri)
    status, moved, deadline = "", None, time.monotonic() + float(seconds)
    while status not in ("completed", "failed") and time.monotonic() < deadline:
        time.sleep(0.05)
        state = qmp.ask("query-migrate")
        status, now = state.get("status"), state.get("ram", {}).get("transferred")
        if now != moved:
            moved, deadline = now, time.monotonic() + float(seconds)
    print("migration:", status, "bytes:", moved)
    running = Qmp(target).ask("query-status")["running"]
    print("runs there:", running)
    return 0 if status == "completed" and running else 1


if __name__ == "__main__":
    sys.exit(main())
