#!/usr/bin/env python3
"""Measures the start of rperf, qperf and perftest in alternating rounds: from the start of the
process until

- the server accepts a connection,
- the first byte of the client has arrived at a server, which is this program,
- a client that sends five messages to the real server has ended.

    benches/start_up.py --rperf target/release/rperf --device rxe0 --address 10.99.0.1

perftest opens the device and creates its objects before it connects, the others after that. On
iWARP it connects without a socket, and qperf cannot run its tests.
"""

import argparse
import itertools
import socket
import statistics
import subprocess
import sys
import time

LIMIT = 20
MESSAGES = "5"


def commands(args):
    """Returns the programs with their servers and clients, for a port."""
    device = args.device
    is_iwarp = device.startswith("siw")
    cm = ["-R"] if is_iwarp else []

    def rperf(port):
        return [args.rperf, "--port", port]

    def qperf(port):
        return ["qperf", "-lp", port]

    def perftest(port):
        return ["ib_send_bw", "-d", device, "-p", port, "-n", MESSAGES] + cm

    def rperf_client(port):
        return rperf(port) + ["--id", device, "--messages", MESSAGES, args.address, "rc_bw"]

    def qperf_client(port):
        return qperf(port) + ["-cm1", "-n", MESSAGES, args.address, "rc_bw"]

    def perftest_client(port):
        return perftest(port) + [args.address]

    programs = {
        "rperf": (rperf, rperf_client),
        "qperf": (qperf, qperf_client),
        "perftest": (perftest, perftest_client),
    }
    if is_iwarp:
        del programs["qperf"]
    return programs


def spawn(words):
    """Starts a program without output."""
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def stop(process):
    """Ends a program."""
    process.kill()
    process.wait()


def listens(port):
    """Returns whether a TCP socket of this machine listens on a port."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as table:
            for line in table:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def time_server(words, port):
    """Returns the time until a server listens, and the server."""
    began = time.monotonic()
    server = spawn(words)
    while not listens(port):
        if server.poll() is not None or time.monotonic() - began > LIMIT:
            raise RuntimeError(f"does not listen: {' '.join(words)}")
        time.sleep(0.001)
    return time.monotonic() - began, server


def time_first_byte(words, address, port):
    """Returns the time until the first byte of a client arrives."""
    with socket.create_server((address, port)) as listener:
        listener.settimeout(LIMIT)
        began = time.monotonic()
        client = spawn(words)
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(LIMIT)
                if not connection.recv(1):
                    raise RuntimeError(f"sends nothing: {' '.join(words)}")
                return time.monotonic() - began
        finally:
            stop(client)


def measure(server, client, args, port):
    """Returns the three times of a program in milliseconds. Each has a port of its own."""
    first = None
    if "-R" not in client("0"):
        # With rdma_cm, perftest connects without a socket.
        first = time_first_byte(client(str(port)), args.address, port)
    ready, process = time_server(server(str(port + 1)), port + 1) if first else (None, None)
    if process is None:
        process = spawn(server(str(port + 1)))
        time.sleep(1)
    try:
        time.sleep(0.2)
        began = time.monotonic()
        words = client(str(port + 1))
        ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT)
        whole = time.monotonic() - began
    finally:
        stop(process)
    # perftest reports nothing if it takes the clocks for unreliable. The messages were sent.
    if ended.returncode != 0 and "produce a report" not in ended.stdout + ended.stderr:
        raise RuntimeError(f"ended with {ended.returncode}: {' '.join(words)}: {ended.stderr}")
    return [None if seconds is None else seconds * 1e3 for seconds in (ready, first, whole)]


def measure_again(server, client, args, ports):
    """Repeats a measurement that fails, for example because qperf was not ready yet."""
    for _ in range(4):
        try:
            return measure(server, client, args, next(ports))
        except RuntimeError as error:
            print(f"repeated: {error}", file=sys.stderr)
    return measure(server, client, args, next(ports))


def main():
    """Prints a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rperf", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--address", required=True, help="IP address of the device")
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    programs = commands(args)
    times = {name: [] for name in programs}
    ports = itertools.count(20000, 2)
    for number in range(args.rounds):
        for name in list(programs)[:: (-1) ** number]:
            times[name].append(measure_again(*programs[name], args, ports))
    print("| device | program | server listens, ms | first byte of the client, ms | whole client, ms |")
    print("|---|---|---:|---:|---:|")
    for name, rounds in times.items():
        cells = [args.device, name]
        for values in zip(*rounds):
            if None in values:
                cells.append("–")
                continue
            low, high = min(values), max(values)
            cells.append(f"{statistics.median(values):.1f} ({low:.1f}..{high:.1f})")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
