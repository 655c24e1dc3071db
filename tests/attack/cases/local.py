# SPDX-License-Identifier: MIT
"""The attacker has a program on the host: it takes all there is, or puts things in our way."""
import errno
import os
import socket
import subprocess

from packet import WRITE_ONLY, bth, reth
from world import B, BUILD, check, skip_part, until

NOBODY = 65534
SLOTS = range(1, 511)


def greedy_program_meets_limits(w):
    """QPs, regions, completion queues, channels and devices until no more are given"""
    a, b = w.pair()
    greedy = w.victim_a()
    a.stream(b)
    r = greedy.ask("exhaust", "qp", 20000)
    check(r["errno"] == errno.ENOMEM and r["taken"] == 16384, f"QPs: {r['taken']}, then ENOMEM")
    greedy.ask("limit", 0, 100)
    for what in ("channel", "device"):
        r = greedy.ask("exhaust", what, 1000)
        check(r["errno"] == errno.EMFILE and r["taken"] > 10, f"{what}s with 100 descriptors: {r['taken']}, then EMFILE")
    greedy.ask("limit", 160, 0)
    for what in ("cq", "mr"):
        r = greedy.ask("exhaust", what, 5000000)
        check(r["errno"] == errno.ENOMEM and r["not_given_back"] == 0,
              f"{what}s in 160 MiB: {r['taken']}, then ENOMEM, all given back")
    greedy.ask("limit", 1 << 20, 0)
    check(greedy.ask("exhaust", "qp", 10)["taken"] == 10, "the greedy program itself goes on when it may have more again")
    a.streamed("another program's traffic went on meanwhile")


def hostile_user_takes_all_slots(w):
    """every process slot's name is bound by somebody else"""
    a, b = w.pair()
    taken = []
    for slot in SLOTS:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            s.bind(f"\0anyrdma/4791/{slot}")
            taken.append(s)
        except OSError:
            check(slot == a.victim.counters().slot, "only the running program's own slot cannot be taken")
    late = w.victim_a()
    r = late.ask("exhaust", "qp", 1)
    check(r["taken"] == 0 and r["errno"] == errno.EUSERS, "a new program gets EUSERS for its first QP")
    a.works_with(b, "a running program is unharmed")
    for s in taken:
        s.close()
    check(late.ask("exhaust", "qp", 1)["taken"] == 1, "the new program gets its QP once the names are free")


def hostile_user_hands_over_packets(w):
    """a frame put into the slot's Unix socket by another user, in the peer's name, with every number right"""
    if subprocess.run(["setpriv", f"--reuid={NOBODY}", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        skip_part("not root: no second user to try it with")
        return
    a, b = w.pair()

    def v4(ip):
        return bytes(10) + b"\xff\xff" + socket.inet_aton(ip)

    frame = bth(WRITE_ONLY, a.qpn, a.psn_in) + reth(a.addr + 64, a.rkey, 64) + b"!" * 64
    hand = v4(B) + v4("10.77.0.1") + (1).to_bytes(4, "little") + len(frame).to_bytes(4, "little") + bytes(4)
    program = ("import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
               "[s.sendto(bytes.fromhex(sys.argv[2]), '\\0' + sys.argv[1]) for _ in range(100)]")

    def hand_over(*identity):
        subprocess.run([*identity, "/usr/bin/python3", "-c", program, f"anyrdma/4791/{a.victim.counters().slot}",
                        (hand + frame).hex()], check=True)

    hand_over("setpriv", f"--reuid={NOBODY}", "--clear-groups")
    a.works_with(b, "the connection is unharmed")
    a.heard_out(b)
    check(a.touched(64, 64) == 0, "no frame reached the QP")
    hand_over()
    until(lambda: a.touched(64, 64) == 64, "the same frames")
    check(True, "the same frames from a process of the same user do: they are trusted, and the frames were right")


def _namespace_dir(w):
    path = f"{w.run}/net-{os.stat('/proc/self/ns/net').st_ino}"
    os.mkdir(path, 0o700)
    return path


def _refused(victim, what):
    """It gets no queue pair. Its adapter would make anew what it misses as soon as it may, so it ends here."""
    r = victim.ask("exhaust", "qp", 1)
    check(r["taken"] == 0 and r["errno"], f"{what}: refused, errno {errno.errorcode.get(r['errno'], r['errno'])}")
    victim.kill()


def registry_holds_strange_things(w):
    """links, FIFOs, directories, sockets, garbage and others' files where the files of processes should be"""
    path, precious = _namespace_dir(w), w.tmp + "/precious"
    with open(precious, "w", encoding="ascii") as f:
        f.write("mine")
    os.symlink(precious, path + "/processes-1")
    os.symlink("/nowhere/at/all", path + "/processes-2")
    os.mkfifo(path + "/processes-3")
    os.mkdir(path + "/processes-4")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path + "/processes-5")
    for name, mode in (("processes-6", 0o000), ("processes-7", 0o777), ("processes-4791", 0o600), ("group-4791", 0o600)):
        with open(f"{path}/{name}", "wb") as f:
            f.write(os.urandom(3000))
        os.chmod(f"{path}/{name}", mode)
    try:
        os.chown(path + "/processes-7", NOBODY, NOBODY)
    except OSError:
        skip_part("not root: no file of another user")
    a, b = w.pair()
    a.works_with(b, "programs start and talk all the same")
    with open(precious, encoding="ascii") as f:
        check(f.read() == "mine" and os.lstat(path + "/processes-1"), "what a link points to is not touched")
    out = subprocess.run([BUILD + "/bin/anyrdma", "devices"], check=True, stdout=subprocess.PIPE, timeout=60,
                         env=dict(os.environ, ANYRDMA_DIR=w.run)).stdout.decode()
    check("PROGRAM" in out, "nothing makes the command wait that lists programs")


def group_file_is_a_trap(w):
    """the file all processes share is a link to something precious, a FIFO, a directory"""
    path, precious = _namespace_dir(w), w.tmp + "/precious"
    with open(precious, "w", encoding="ascii") as f:
        f.write("mine")
    for what, make in (("link", lambda p: os.symlink(precious, p)), ("FIFO", os.mkfifo), ("directory", os.mkdir)):
        make(path + "/group-4791")
        _refused(w.victim_a(), f"a {what}")
        (os.rmdir if what == "directory" else os.unlink)(path + "/group-4791")
    with open(precious, encoding="ascii") as f:
        check(f.read() == "mine", "what the link points to is not touched")


def run_directory_is_not_ours_alone(w):
    """a run directory that others may write to, that is a link, that belongs to somebody else"""
    def refused(what):
        _refused(w.victim_a(), what)

    real = w.run
    os.chmod(real, 0o777)
    refused("others may write to it")
    os.chmod(real, 0o700)
    path = _namespace_dir(w)
    os.chmod(path, 0o755)
    refused("others may look into the part that holds the registry")
    os.rmdir(path)
    w.run = w.tmp + "/link"
    os.symlink(real, w.run)
    refused("it is a link")
    w.run = real
    try:
        os.chown(real, NOBODY, NOBODY)
        refused("it belongs to another user")
        os.chown(real, os.geteuid(), os.getegid())
    except OSError:
        skip_part("not root: no directory of another user")
    check(w.victim_a().ask("exhaust", "qp", 1)["taken"] == 1, "put right again: accepted")
