# SPDX-License-Identifier: MIT
"""What programs share in the run directory goes away under them: systemd's RemoveIPC at a logout, a user that tidies up, a full disk."""
import glob
import os
import shutil
import subprocess

from cases.connect import CONNECT_REQUEST, CONNECT_RESPONSE, ESTABLISHED
from world import A, BUILD, End, check, counters, tell, until

OLD, NEW = 4, 2
FILES = ("group-*", "processes-*")


def _remove(w):
    shutil.rmtree(w.run)
    os.mkdir(w.run, 0o700)


def _change(pattern, how):
    def change(w):
        for path in glob.glob(f"{w.run}/net-*/{pattern}"):
            how(path)
    return change


def _fill(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.write(os.urandom(min(max(size, 100), 4096)))


def _connected(x, y):
    """A connection over packets between two programs of host A."""
    a, b = End(x), End(y)
    a.connect(A, b)
    b.connect(A, a)
    return a, b


def _meets(x, y, what):
    a, b = _connected(x, y)
    a.works_with(b, what)
    b.works_with(a, what + ", the other way")


def _calls(client, server, port, what):
    """The client finds the server, which listens, by rdma_cm."""
    c, s = End(client), End(server)
    client.ask("cm_connect", c.ep, A, port)
    event = server.ask("cm_event", 40000)["event"]
    check(event == CONNECT_REQUEST, what + ": the request comes")
    server.ask("cm_accept", s.ep)
    event = client.ask("cm_event", 40000)["event"]
    check(event == CONNECT_RESPONSE, what + ": and the answer")
    client.ask("cm_establish", c.ep)
    check(server.ask("cm_event", 40000)["event"] == ESTABLISHED, what + ": established")
    c.works_with(s, what + ": data")


def _all_work(old, new, pairs, ports):
    for i, (a, b) in enumerate(pairs):
        a.works_with(b, f"old connection {i} goes on")
    for i, x in enumerate(new):
        _meets(x, old[i % OLD], f"new program {i} and an old one")
        _calls(x, old[(i + 1) % OLD], ports[(i + 1) % OLD], f"new program {i} calls an old one")
        _calls(old[i % OLD], x, x.ask("cm_listen", 8)["port"], f"an old program calls new one {i}")
    _meets(old[0], old[2], "two old programs that did not know each other")
    _calls(old[1], old[3], ports[3], "an old program calls an old one")


def _listening(victims):
    return [v.ask("cm_listen", 8)["port"] for v in victims]


def _lose(w, lose):
    old = [w.victim_a() for _ in range(OLD)]
    pairs = [_connected(old[0], old[1]), _connected(old[2], old[3])]
    ports = _listening(old)
    for a, b in pairs:
        a.works_with(b, "at first")
    lose(w)
    new = [w.victim_a() for _ in range(NEW)]
    _all_work(old, new, pairs, ports)
    check(all(v.process.poll() is None for v in old + new), "everybody lives")
    return old, new


def _counted(w, programs, what):
    until(lambda: {v.pid for v in programs} == {c.pid for c in counters.living(w.run)}, "records")
    check(all(v.counters().get("tx_packets") for v in programs), what)


def run_directory_is_removed(w):
    """while programs run; then others start, and all of them talk to each other and by themselves"""
    old, new = _lose(w, _remove)
    _counted(w, old + new, "all of them can be found and their counters be read")


def _lists(w, programs):
    """Whether the command does. It waits a moment for those it misses, which may be short of CPU."""
    out = subprocess.run([BUILD + "/bin/anyrdma", "devices"], check=True, stdout=subprocess.PIPE,
                         env=dict(os.environ, ANYRDMA_DIR=w.run)).stdout.decode()
    return all(f"\n{v.pid:8}  " in out for v in programs)


def file_of_processes_is_removed(w):
    """and nothing else; nobody but who starts or asks misses it"""
    old = [w.victim_a() for _ in range(OLD)]
    for a, b in (_connected(old[0], old[1]), _connected(old[2], old[3])):
        a.works_with(b, "at first")
    _change("processes-*", os.unlink)(w)
    until(lambda: _lists(w, old), "a list of all programs")
    _change("processes-*", os.unlink)(w)
    new = w.victim_a()
    _meets(new, old[0], "a new program and an old one")
    _counted(w, old + [new], "who starts finds them")


def file_of_processes_cannot_be_opened(w):
    """when a program starts; it is found later, once it can"""
    old = w.victim_a()
    old.ask("cm_listen", 8)

    def bar(path):
        os.unlink(path)
        os.mkdir(path)

    _change("processes-*", bar)(w)
    new = w.victim_a()
    _meets(new, old, "a program that could not enter itself and an old one")
    _change("processes-*", os.rmdir)(w)
    until(lambda: _lists(w, [old, new]), "a list of both")
    _calls(old, new, new.ask("cm_listen", 8)["port"], "the old program calls it")


def run_directory_is_removed_again_and_again(w):
    """each time by one more program that starts"""
    victims, ports = [w.victim_a()], []
    ports += _listening(victims)
    for i in range(4):
        _remove(w)
        late = w.victim_a()
        _meets(late, victims[i // 2], f"program {i + 1} and one of those before")
        _calls(late, victims[0], ports[0], f"program {i + 1} calls the first")
        victims.append(late)


def shared_files_are_emptied(w):
    """truncate -s 0 of everything while programs have it open"""
    for pattern in FILES:
        tell(pattern)
        old, new = _lose(w, _change(pattern, lambda path: os.truncate(path, 0)))
        for v in old + new:
            v.kill()


def shared_files_are_cut_or_filled(w):
    """to lengths in the midst of things, and with anything"""
    for n in (1, 17, 100, 700, 3000):
        old, new = _lose(w, _change("*-*", lambda path, n=n: os.truncate(path, n)))
        for v in old + new:
            v.kill()
    old, new = _lose(w, _change("*-*", _fill))


def shared_files_are_emptied_with_nobody_new(w):
    """those who are there find each other again by themselves"""
    old = [w.victim_a() for _ in range(OLD)]
    ports = _listening(old)
    for pattern in FILES:
        _change(pattern, lambda path: os.truncate(path, 0))(w)
    for i in range(OLD):
        _calls(old[i], old[(i + 1) % OLD], ports[(i + 1) % OLD], f"program {i} calls the next")
        _meets(old[i], old[(i + 2) % OLD], f"program {i} and the one after that")


def run_directory_is_removed_while_one_is_stopped(w):
    """it harms nobody, and is there again when it goes on"""
    old = [w.victim_a() for _ in range(3)]
    ports = _listening(old)
    a, b = _connected(old[0], old[1])
    a.works_with(b, "at first")
    old[1].stop()
    _remove(w)
    new = w.victim_a()
    _meets(new, old[2], "a new program and an old one")
    old[1].go_on()
    _calls(new, old[0], ports[0], "a new program calls an old one")
    _meets(new, old[1], "the new one and the one that was stopped")
    a.works_with(b, "its connection from before")
    _calls(new, old[1], ports[1], "the new one calls it")
    _calls(old[1], new, new.ask("cm_listen", 8)["port"], "it calls the new one")
