#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""intruder.py MODE JSON: a program that speaks the handshake of shared memory by itself (docs/wire/local.md).

It connects to @anyrdma/4791/<slot>/memory, says HELLO with a ring of its own, and takes what it is given. Modes:

    take   says what it was passed, searches it for the victim's secrets, overwrites what it can map
    act    proves access, then says that it acts in the victim's memory, and never that it is done
    write  puts frames into its ring
    lure   listens itself, and exports memory of its own as if it lay in a file that it does not have

It answers with one line of JSON, and stays until its standard input ends. Nothing here comes from the library.
"""
import ctypes
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import sys

MAGIC, RING_MAGIC = 0x7465656D, 0x676E6972
HELLO, WELCOME, PROOF, EXPORT = 1, 2, 3, 4
VERSION = 4
WORD = struct.Struct("<IIIIQQ32s")  # magic, version, kind, slot, at, token, nonce
OLD_WORD = struct.Struct("<IIII")   # of version 2: magic, version, slot, reserved
SLOTS, DATA = 4096, 2 << 20
ACTING, PATHS, SLOT, RING_SIZE = 64, 768, 8192, 8192 + SLOTS * 64 + DATA
PATIENCE = 5

libc = ctypes.CDLL(None, use_errno=True)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def reads(pid, addr, length):
    """Bytes out of another process, or None: the kernel refuses."""
    own = ctypes.create_string_buffer(length)
    a, b = Iovec(ctypes.addressof(own), length), Iovec(addr, length)
    got = libc.process_vm_readv(pid, ctypes.byref(a), 1, ctypes.byref(b), 1, 0)
    return own.raw if got == length else None


class Ring:
    """Shared memory as the library makes it; since version 4 it has a line for `revoked`."""

    def __init__(self, version):
        self.fd = os.memfd_create("intruder", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, RING_SIZE)
        fcntl.fcntl(self.fd, 1033, 2 | 4)  # F_ADD_SEALS: SHRINK, GROW
        self.mem = mmap.mmap(self.fd, RING_SIZE)
        self.mem[:8] = struct.pack("<II", RING_MAGIC, version)
        self.paths = PATHS if version > 3 else PATHS - 64
        self.head = 0

    def path(self, sgid, dgid, ifindex):
        self.mem[self.paths:self.paths + 80] = sgid + dgid + struct.pack("<IBB10x", ifindex, 0, 64) + bytes(32)

    def put(self, header, payload):
        at = SLOT + self.head % SLOTS * 64
        self.mem[at + 4:at + 64] = struct.pack("<IIHBB", 0, 0, len(payload), len(header), 0) + (header + payload).ljust(48, b"\0")
        self.head += 1
        self.mem[at:at + 4] = struct.pack("<I", self.head)


class Connection:
    """One HELLO, in the version that the victim answers; tries both."""

    def __init__(self, task):
        self.passed, self.words = [], []
        for self.version in (VERSION, 2):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.connect(f"\0anyrdma/4791/{task['slot']}/memory")
            self.ring = Ring(3 if self.version == 2 else 6)
            self.hello(task.get("claim", 1))
            if self.hear():
                return

    def hello(self, slot):
        said = OLD_WORD.pack(MAGIC, 2, slot, 0) if self.version == 2 else self.word(HELLO, slot)
        socket.send_fds(self.socket, [said], [self.ring.fd])

    @staticmethod
    def word(kind, slot=0, nonce=b""):
        return WORD.pack(MAGIC, VERSION, kind, slot, 0, 77, nonce)

    def hear(self):
        """The next word; None: none came, or the victim has ended the connection."""
        if not select.select([self.socket], [], [], PATIENCE)[0]:
            return None
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 8)
        except ConnectionError:
            return None
        self.passed += fds
        if data:
            self.words.append(data)
        return data or None

    def welcome_at(self):
        return WORD.unpack(self.words[0])[4] if self.words and len(self.words[0]) == WORD.size else 0

    def prove(self, nonce):
        """Whether an export came for it."""
        if self.version == 2:
            return False  # nobody asks for a proof
        had = len(self.passed)
        try:
            self.socket.send(self.word(PROOF, nonce=nonce))
        except (BrokenPipeError, ConnectionError):
            return False
        self.hear()
        return len(self.passed) > had


# ---- what is in a descriptor ----
def stretches(fd, size):
    """Where it has contents: a memory file may be longer than any memory."""
    at = 0
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(fd, at, os.SEEK_HOLE)
        yield at, min(end, size) - at
        at = end


def overwrite(fd, at, length):
    try:
        return os.pwrite(fd, b"\xee" * length, at) == length
    except OSError:
        pass
    try:
        with mmap.mmap(fd, length, offset=at // 4096 * 4096) as m:
            m[:] = b"\xee" * length
        return True
    except (OSError, ValueError):
        return False


def look(fd, patterns):
    size, found, written = os.fstat(fd).st_size, set(), False
    for at, length in list(stretches(fd, size)):
        data = os.pread(fd, length, at)
        found |= {name for name, text in patterns.items() if bytes.fromhex(text) in data}
        written |= overwrite(fd, at, length)
    return {"size": size, "found": sorted(found), "written": written}


def proofs(c):
    """What one who cannot read the nonce may say instead."""
    at = struct.pack("<Q", c.welcome_at())
    return [bytes(32), at.ljust(32, b"\0"), os.urandom(32), c.words[0][-32:] if c.version == VERSION else b""]


def use_nonce(task, passed):
    """How many exports it gets for a nonce that it could read: on its connection, again on that, and on another."""
    right, other = Connection(task), Connection(task)
    nonce = reads(task["pid"], right.welcome_at(), 32) if right.welcome_at() else None
    got = [] if nonce is None else [right.prove(nonce), right.prove(nonce), other.prove(nonce)]
    passed += right.passed + other.passed
    return sum(got)


def take(task):
    passed, exports, welcomes = [], 0, 0
    for guess in range(4):
        c = Connection(task)
        welcomes += len(c.words) > 0
        exports += bool(c.words) and c.prove(proofs(c)[guess])
        passed += c.passed
    proved = use_nonce(task, passed)
    return {"welcomes": welcomes, "exports": exports, "proved": proved,
            "kernel": reads(task["pid"], task["addr"], 16) is not None,
            "passed": [look(fd, task["patterns"]) for fd in passed]}


def act(task):
    kept = []
    for _ in range(task["times"]):
        c = Connection(task)
        proved = c.version == 2 or c.prove(reads(task["pid"], c.welcome_at(), 32))
        if proved:
            c.ring.mem[ACTING:ACTING + 4] = struct.pack("<I", 1)
        kept.append(c)
    task["kept"] = kept
    return {"acting": sum(c.ring.mem[ACTING] for c in kept)}


def write(task):
    c = Connection(task)
    c.ring.path(bytes.fromhex(task["sgid"]), bytes.fromhex(task["dgid"]), task["ifindex"])
    for header, payload in task["frames"]:
        c.ring.put(bytes.fromhex(header), bytes.fromhex(payload))
    c.socket.send(b"\0")
    task["kept"] = c
    return {"version": c.version, "frames": c.ring.head}


# ---- one that is connected to ----
BELL_MAGIC, BELL_SIZE = 0x6C6C6562, 128
FILES, QPS, KEYS, EXPORT_SIZE = 64, 16448, 1392704, 23674944  # where the tables of an export begin, and its end


def shown(name, size):
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, 1033, 2 | 4)
    return fd


def forge_export(task, host):
    """One queue pair and one key, in every place of the first level, so that nobody has to know how they are found."""
    fd = shown("export", EXPORT_SIZE)
    file = struct.pack("<IIiIQQ", 2, 1, -1, 0, task["dev"], task["inode"])
    gid = bytes.fromhex(task["gid"])
    qp = struct.pack("<IIII16s16sIIIHH", 2, task["qpn"], task["peer_qpn"], task["peer_psn"], gid, gid, 1, 15, 0, 0xFFFF, 0)
    key = struct.pack("<IIIHHQQQQQQ", 2, task["rkey"], 1, 15, 1, host, 4096, host, host, 0, 4096)
    os.pwrite(fd, struct.pack("<I", 1), 0)        # somebody holds it: alive
    os.pwrite(fd, struct.pack("<III", 1, 1, 1), 40)  # a change; levels
    os.pwrite(fd, file, FILES)
    os.pwrite(fd, qp * 1024, QPS)
    os.pwrite(fd, key * 4096, KEYS)
    return fd


def answer(task, caller, data, bell, page):
    kind = WORD.unpack(data)[2] if len(data) == WORD.size else 0
    if kind == HELLO:
        socket.send_fds(caller, [WORD.pack(MAGIC, VERSION, WELCOME, task["slot"], task["at"], 0, b"")], [bell])
    elif kind == PROOF:
        task["proof"] = WORD.unpack(data)[6].hex()
        socket.send_fds(caller, [Connection.word(EXPORT)], [forge_export(task, ctypes.addressof(page))])
        print(json.dumps({"exported": 1}), flush=True)


def serve(task, caller, page):
    """Until it goes away, or we are told to, and it has said nothing more."""
    bell = shown("bell", BELL_SIZE)
    os.pwrite(bell, struct.pack("<IIQ", BELL_MAGIC, 4, 1), 0)
    while caller in select.select([caller, sys.stdin], [], [])[0]:
        data, fds, _, _ = socket.recv_fds(caller, 4096, 8)
        if not data:
            return
        task["kept"] += fds
        answer(task, caller, data, bell, page)


def lure(task):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0anyrdma/4791/{task['slot']}/memory")
    listener.listen()
    if task.get("leaves") and os.fork():
        os._exit(0)  # who listened is gone; its child answers
    memory = mmap.mmap(-1, 4096)
    page, nonce = (ctypes.c_char * 4096).from_buffer(memory), ctypes.create_string_buffer(32)
    memory[:] = b"m" * 4096
    task.setdefault("at", ctypes.addressof(nonce))
    print(json.dumps({"addr": ctypes.addressof(page)}), flush=True)
    task["kept"] = [memory]
    if listener not in select.select([listener, sys.stdin], [], [])[0]:
        return {}  # nobody came, and nobody wants to know any more
    serve(task, listener.accept()[0], page)
    return {"written": memory[:64].count(0), "proof": task.get("proof")}


def main():
    task = json.loads(sys.argv[2])
    print(json.dumps({"take": take, "act": act, "write": write, "lure": lure}[sys.argv[1]](task)), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
