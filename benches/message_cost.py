#!/usr/bin/env python3
"""Counts the instructions that rperf and perftest spend on a message, and prints them as a table.

Both programs run on the model of an mlx5 adapter under callgrind, client and server as processes of
their own. Counted are the instructions of the program and its libraries, without those of the model
and without waiting: see c/count.c.

usage: message_cost.py --rperf PROGRAM --model libnic_model.so --count count.so [--check]
                       [--sizes 2,64,4096] [--tests send_bw,read_lat] [--profiles DIRECTORY]
"""

import argparse
import collections
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Messages before the counted ones, the counted messages, and those after them: more than the
# adapters of both ends can have in flight.
BEFORE, COUNTED, AFTER = 2048, 2048, 2048
# Messages of a latency test, in which one message is in flight. rperf reads the kernel's clock for
# the first 50 ms.
PING_BEFORE, PING_COUNTED, PING_AFTER = 1000, 500, 600
# Seconds after which a test has failed.
TIMEOUT = 120

Test = collections.namedtuple("Test", "verb kind rperf two_ends ping")

TESTS = [
    Test("send", "bw", ["rc_bw"], True, False),
    Test("send", "lat", ["rc_lat"], True, True),
    Test("write", "lat", ["rc_rdma_write_poll_lat"], True, True),
    Test("write", "bw", ["--immediate", "off", "rc_rdma_write_bw"], False, False),
    Test("read", "bw", ["rc_rdma_read_bw"], False, False),
    Test("read", "lat", ["rc_rdma_read_lat"], False, False),
]


def test_name(test):
    return f"{test.verb}_{test.kind}"


def is_listening(port):
    """Returns whether a socket of this host listens on the TCP port."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as table:
            for line in list(table)[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].split(":")[1], 16) == port:
                    return True
    return False


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def instructions(profile, excluded):
    """Sums the instructions of a callgrind profile by object, without the excluded objects."""
    names, total, current, is_call = {}, 0, "", False
    with open(profile) as lines:
        for line in lines:
            found = re.match(r"c?ob=(\(\d+\))(?: (.*))?", line)
            if found:
                if found[2]:
                    names[found[1]] = found[2]
                if line.startswith("ob="):
                    current = names[found[1]]
            elif line.startswith("calls="):
                is_call = True
            elif re.match(r"[0-9+*-]", line):
                # The line after a call has the cost of the called functions, counted elsewhere.
                if not is_call and current not in excluded:
                    total += int(line.split()[1])
                is_call = False
    return total


class Runner:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.run = ""

    def start(self, name, command, test):
        before, counted = (PING_BEFORE, PING_COUNTED) if test.kind == "lat" else (BEFORE, COUNTED)
        environment = dict(
            os.environ,
            NIC_MODEL="mlx5_0",
            LD_PRELOAD=f"{self.options.count} {self.options.model}",
            COUNT_FROM=str(before),
            COUNT_TO=str(before + counted),
            COUNT_PING=str(int(test.ping)),
            COUNT_WAIT_MS="1000" if test.ping else "50",
            COUNT_REPORT=self.path(name, "report"),
        )
        valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no"]
        profile = f"--callgrind-out-file={self.path(name, 'profile')}"
        with open(self.path(name, "log"), "w") as log:
            return subprocess.Popen(
                [*valgrind, profile, *command], env=environment, stdout=log, stderr=log
            )

    def path(self, name, kind):
        return os.path.join(self.directory, f"{self.run}.{name}.{kind}")

    def commands(self, program, test, size, port):
        """Returns the commands of the server and of the client."""
        if test.kind == "lat":
            count = PING_BEFORE + PING_COUNTED + PING_AFTER
        else:
            count = BEFORE + COUNTED + AFTER
        if program == "rperf":
            server = [self.options.rperf, "--port", str(port), "--bind", "127.0.0.1"]
            client = [self.options.rperf, "--port", str(port), "--wait", "poll"]
            client += ["--id", "mlx5_0", "--timeout", str(TIMEOUT)]
            client += ["-m", str(size), "-n", str(count), "127.0.0.1", *test.rperf]
            return server, client
        server = [f"ib_{test.verb}_{test.kind}", "-F", "-d", "mlx5_0", "-p", str(port)]
        # An acknowledgment may take up to 17 s, because callgrind delays the peer.
        server += ["-s", str(size), "-n", str(count), "-u", "22"]
        return server, [*server, "127.0.0.1"]

    def measure(self, program, test, size):
        """Returns the instructions per message at the client and at the server."""
        self.run = f"{test_name(test)}.{size}.{program}"
        port = free_port()
        server_command, client_command = self.commands(program, test, size, port)
        deadline = time.monotonic() + TIMEOUT
        server = self.start("server", server_command, test)
        try:
            while not is_listening(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    self.fail("server", server_command)
                time.sleep(0.05)
            client = self.start("client", client_command, test)
            try:
                client.wait(max(1, deadline - time.monotonic()))
                # The exit status says nothing about the counted messages: an end may fail after
                # them because its peer has already exited.
                if not os.path.exists(self.path("client", "report")):
                    self.fail("client", client_command)
            except subprocess.TimeoutExpired:
                self.fail("client", client_command)
            finally:
                client.kill()
                client.wait()
            if program == "rperf":
                server.send_signal(signal.SIGINT)
            server.wait(max(1, deadline - time.monotonic()))
        finally:
            server.kill()
            server.wait()
        return [self.cost(name) for name in (["client", "server"] if test.two_ends else ["client"])]

    def cost(self, name):
        excluded = [os.path.realpath(path) for path in (self.options.model, self.options.count)]
        with open(self.path(name, "report")) as report:
            messages, polls, empty, _uncounted = map(int, report.read().split())
        if self.options.verbose:
            print(f"{name}: {messages} messages, {polls} polls, {empty} empty", file=sys.stderr)
        return instructions(self.path(name, "profile"), excluded) / messages

    def fail(self, name, command):
        with open(self.path(name, "log")) as log:
            sys.exit(f"message_cost: {' '.join(command)} failed:\n{log.read()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for program in ("rperf", "model", "count"):
        parser.add_argument(f"--{program}", required=True, type=os.path.realpath)
    parser.add_argument("--sizes", default="2,64,4096", help="message sizes in bytes")
    parser.add_argument("--tests", help="only these tests, such as send_bw,read_lat")
    parser.add_argument("--check", action="store_true", help="fail if rperf needs more")
    parser.add_argument("--profiles", help="keep the profiles of callgrind in this directory")
    parser.add_argument("--verbose", action="store_true", help="print the number of polls")
    options = parser.parse_args()
    if options.profiles:
        os.makedirs(options.profiles, exist_ok=True)
    worse = []
    print("| test | bytes | end | rperf | perftest | rperf / perftest |")
    print("|---|---:|---|---:|---:|---:|")
    names = (options.tests or ",".join(map(test_name, TESTS))).split(",")
    tests = [test for test in TESTS if test_name(test) in names]
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(options, options.profiles or directory)
        for test in tests:
            for size in map(int, options.sizes.split(",")):
                ours = runner.measure("rperf", test, size)
                theirs = runner.measure("perftest", test, size)
                for end, a, b in zip(["client", "server"], ours, theirs):
                    row = f"{test_name(test)} | {size} | {end}"
                    print(f"| {row} | {a:.0f} | {b:.0f} | {a / b:.2f} |", flush=True)
                    if a > b:
                        worse.append(row)
    if options.check and worse:
        sys.exit(f"message_cost: rperf needs more instructions than perftest: {'; '.join(worse)}")


if __name__ == "__main__":
    main()
