#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ordinary socket programs for sockets.sh: sockets.py serve asyncio|fork|thread HOST PORT | talk HOST PORT COUNT

serve  answers every byte with the same byte until the client has sent all: in an event loop on epoll, in a process or in a
       thread for each client
talk   COUNT clients at once, each sending and comparing a million random bytes
"""
import asyncio
import concurrent.futures
import random
import socket
import socketserver
import sys
import threading


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(50000):
            self.request.sendall(data)


async def echo(reader, writer):
    while data := await reader.read(50000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve_asyncio(host, port):
    server = await asyncio.start_server(echo, host, port)
    await server.serve_forever()


def serve(kind, host, port):
    if kind == "asyncio":
        asyncio.run(serve_asyncio(host, port))
    base = {"fork": socketserver.ForkingTCPServer, "thread": socketserver.ThreadingTCPServer}[kind]
    base.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
    base.allow_reuse_address = True
    with base((host, port), Echo) as server:
        server.serve_forever()


def talk(host, port, number):
    data = random.Random(number).randbytes(1_000_000)
    with socket.create_connection((host, port)) as sock:
        sender = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        sender.start()
        back = b"".join(iter(lambda: sock.recv(70000), b""))
        sender.join()
    assert back == data, f"client {number}: {len(back)} bytes came back, or others"


def main(what, *args):
    if what == "serve":
        serve(args[0], args[1], int(args[2]))
    with concurrent.futures.ThreadPoolExecutor(int(args[2])) as pool:
        list(pool.map(lambda number: talk(args[0], int(args[1]), number), range(int(args[2]))))
    print("all bytes came back")


main(*sys.argv[1:])
