#!/usr/bin/env python3
"""Measures how processor time and memory grow with what is measured, and fails where they grow
faster than linearly.

    benches/growth.py --programs target/release
    benches/growth.py --programs target/release --device rxe0 --address 10.99.0.1 queue-pairs

Each row doubles a number several times. The processor time is that of all processes of the row, and
the memory that of the largest one. A machine under load makes both only a little larger, unlike the
time that passes, and of several measurements the smallest one counts. The steepest step is the cost
of one more unit in a step, divided by that in the step before. It is 1 if the growth is linear, and
2 if it is quadratic. A row that exceeds the limit is measured again.
"""

import argparse
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.7
"""Largest steepest step. It lies between 1, which is linear, and 2, which is quadratic."""
TRIES = 4
"""Number of times that a row is measured until it is linear."""
ROUNDS = 2
"""Number of measurements of a point in a try."""
NOISE = {"cpu": 0.03, "memory": 1 << 20}
"""Growth of a step, in seconds and bytes, that the clock and the allocator can cause."""
PORT = 23000


def wait_for_port(port):
    """Waits until a server listens."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


def memory_of(process):
    """Returns the largest memory of a process so far, or 0 if it has ended."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) << 10 if found else 0


def seconds_of(process):
    """Returns the processor seconds of a process so far."""
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    return sum(map(int, stat.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


class Cost:
    """Processor time and memory of processes."""

    def __init__(self):
        self.seconds, self.bytes = 0.0, 0

    def run(self, *commands):
        """Runs commands at the same time, and adds their cost."""
        with tempfile.TemporaryFile() as errors:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": errors}
            running = [subprocess.Popen(list(map(str, words)), **quiet) for words in commands]
            while running:
                running = [process for process in running if not self.has_ended(process, errors)]
                time.sleep(0.005)

    def has_ended(self, process, errors):
        """Adds the cost of a process if it has ended, and otherwise notes its memory."""
        # The memory in the resource usage of a process begins with that of this program.
        self.bytes = max(self.bytes, memory_of(process))
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not ended:
            return False
        process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds += usage.ru_utime + usage.ru_stime
        # 1 and 3: a path of the monitor is not up yet, or a host of the mesh is slow.
        if process.returncode not in (0, 1, 3):
            errors.seek(0)
            text = errors.read().decode()
            raise RuntimeError(f"{process.args}: status {process.returncode}: {text}")
        return True


class Servers:
    """Servers of rperf, which end with the block, and whose cost is added then."""

    def __init__(self, args, cost, count=1, options=()):
        self.cost, self.ports = cost, list(range(PORT, PORT + count))
        words = [args.rperf, *options, "--port"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = [subprocess.Popen([*words, str(port)], **quiet) for port in self.ports]

    def __enter__(self):
        for port in self.ports:
            wait_for_port(port)
        return self.ports

    def __exit__(self, *_):
        for process in self.processes:
            self.cost.seconds += seconds_of(process)
            self.cost.bytes = max(self.cost.bytes, memory_of(process))
            process.kill()
            process.wait()


def client(args, *words):
    """Returns the command of a client on this host."""
    host = args.address if args.device else "127.0.0.1"
    device = ["--id", args.device] if args.device else []
    return [args.rperf, "--port", PORT, *device, "--json", host, *words]


def one_client(args, cost, *words):
    """Runs one client with a server."""
    with Servers(args, cost):
        cost.run(client(args, *words))


def queue_pairs(args, cost, number):
    """Runs one client with many queue pairs. Each of them sends the same number of messages."""
    one_client(args, cost, "--qps", number, "--depth", 4, "--messages", 20 * number, "rc_bw")


def threads(args, cost, number):
    """Runs one client with many threads."""
    each = ["--parallel", number, "--messages", 20000 * number]
    one_client(args, cost, *each, "--msg-size", "4K", "tcp_bw")


def clients(args, cost, number):
    """Runs many clients at the same time."""
    with Servers(args, cost):
        cost.run(*[client(args, "--messages", 2000, "tcp_lat") for _ in range(number)])


def hosts(args, cost, number):
    """Runs a mesh. Its cost for each cell is compared."""
    with Servers(args, cost, number, ("--mesh", "--allow", "127.0.0.0/8")) as ports:
        names = ",".join(f"127.0.0.1:{port}" for port in ports)
        words = [args.rperf, "mesh", "--slow-latency", 100000, "--json", names]
        cost.run([*words, "--messages", 20, "tcp_lat"])


def sizes(args, cost, number):
    """Sends messages of a size."""
    one_client(args, cost, "--messages", 4000, "--msg-size", number, "tcp_bw")


def intervals(args, cost, number):
    """Runs a test that takes the same time for each of its intervals, and does little."""
    each = ["--time", f"{20 * number}ms", "--interval", "20ms", "--rate-limit", "100KB/s"]
    one_client(args, cost, *each, "--msg-size", 64, "tcp_bw")


def targets(args, cost, number):
    """Monitors many servers for the same time."""
    with Servers(args, cost, number) as ports:
        names = ",".join(f"127.0.0.1:{port}" for port in ports)
        cost.run([args.rperf, "monitor", "--interval", "50ms", "--time", 3, names])


def devices(args, cost, number):
    """Prints the metrics of a host with many devices, each with tables of 256 entries."""
    tree = Path(args.directory) / str(number)
    if not tree.exists():
        write_devices(tree, number)
    cost.run([args.ribinfo, "export", "--root", tree])


def records(args, cost, number):
    """Makes a page of many records with latencies, each of a message size of its own."""
    path = Path(args.directory) / f"{number}.json"
    if not path.exists():
        write_records(args, path, number)
    cost.run([args.rperf, "report", "--output", path.with_suffix(".html"), path])


def write_records(args, path, number):
    """Writes the record of a test several times, with other sizes."""
    with Servers(args, Cost()):
        words = client(args, "--messages", 100, "tcp_lat")
        output = subprocess.run(list(map(str, words)), check=True, capture_output=True)
    document = json.loads(output.stdout)
    (test,) = document["tests"]
    text = json.dumps(test)
    document["tests"] = [json.loads(text) for _ in range(number)]
    for index, test in enumerate(document["tests"]):
        test["outcome"]["measured"]["spec"]["msg_size"] = index + 1
    path.write_text(json.dumps(document), encoding="utf-8")


def write_devices(tree, number):
    """Writes the files of RDMA devices."""
    for device in range(number):
        directory = tree / f"sys/class/infiniband/mlx5_{device}"
        port = directory / "ports/1"
        tables = ("gids", "pkeys", "gid_attrs/types", "gid_attrs/ndevs", "counters", "hw_counters")
        for table in tables:
            (port / table).mkdir(parents=True)
        files = {
            directory / "node_type": "1: CA",
            port / "state": "4: ACTIVE",
            port / "link_layer": "Ethernet",
        }
        for row in range(256):
            files[port / f"gids/{row}"] = f"fe80::{device:x}:{row + 1:x}"
            files[port / f"gid_attrs/types/{row}"] = "RoCE v2"
            files[port / f"gid_attrs/ndevs/{row}"] = f"eth{device}"
            files[port / f"pkeys/{row}"] = "0xffff" if row == 0 else "0x0000"
        for row in range(20):
            files[port / f"counters/counter_{row}"] = str(row)
            files[port / f"hw_counters/counter_{row}"] = str(row)
        for path, text in files.items():
            path.write_text(text + "\n", encoding="ascii")


ROWS = {
    "queue-pairs": (queue_pairs, [32, 64, 128, 256], None),
    "threads": (threads, [8, 16, 32, 64], None),
    "clients": (clients, [8, 16, 32, 64], None),
    "hosts": (hosts, [8, 16, 32, 64], lambda number: number * (number - 1)),
    "sizes": (sizes, [1 << 17, 1 << 18, 1 << 19, 1 << 20], None),
    "intervals": (intervals, [50, 100, 200, 400], None),
    "targets": (targets, [4, 8, 16, 32], None),
    "devices": (devices, [8, 16, 32, 64], None),
    "records": (records, [240, 480, 960, 1920], None),
}
"""The function of each row, its numbers, and the units of a number if these differ."""


def steepest(units, costs, noise):
    """Returns the largest ratio of the cost of a unit in a step to that in the step before."""
    steps = list(zip(units, units[1:], costs, costs[1:]))
    slopes = [max(high - low, noise) / (after - before) for before, after, low, high in steps]
    # Noise that would be most of a small step is no cost of it.
    floors = [noise / (after - before) for before, after, _, _ in steps]
    pairs = zip(slopes, slopes[1:], floors)
    return max(after / max(before, floor) for before, after, floor in pairs)


def measure(args, name):
    """Measures a row until it is linear. Returns whether it is."""
    function, numbers, units = ROWS[name]
    numbers = numbers[: args.steps]
    units = list(map(units, numbers)) if units else numbers
    seconds, memory = [float("inf")] * len(numbers), [float("inf")] * len(numbers)
    ratios = {}
    for _ in range(TRIES):
        for index, number in enumerate(numbers * ROUNDS):
            cost = Cost()
            function(args, cost, number)
            index %= len(numbers)
            seconds[index] = min(seconds[index], cost.seconds)
            memory[index] = min(memory[index], cost.bytes)
        ratios = {
            "cpu": steepest(units, seconds, NOISE["cpu"]),
            "memory": steepest(units, memory, NOISE["memory"]),
        }
        if max(ratios.values()) <= LIMIT:
            break
    cells = [
        name,
        ", ".join(map(str, numbers)),
        ", ".join(f"{value:.2f}" for value in seconds),
        f"{ratios['cpu']:.2f}",
        ", ".join(f"{value / 2**20:.1f}" for value in memory),
        f"{ratios['memory']:.2f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)
    return max(ratios.values()) <= LIMIT


def main():
    """Prints a row for each kind of growth."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--programs", required=True, help="directory of rperf and ribinfo")
    parser.add_argument("--device", help="RDMA device; needed by queue-pairs")
    parser.add_argument("--address", help="IP address of the device")
    parser.add_argument("--steps", type=int, default=4, help="number of points of a row, from 3")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)} [default: all]")
    args = parser.parse_args()
    for name in ("rperf", "ribinfo"):
        setattr(args, name, str(Path(args.programs) / name))
    unknown = [name for name in args.rows if name not in ROWS]
    if unknown or args.steps < 3 or bool(args.device) != bool(args.address):
        parser.error("give known rows, at least three steps, and --address with --device")
    # Without a device, a row that needs one is not measured, which is printed.
    names = args.rows or [name for name in ROWS if (name == "queue-pairs") <= bool(args.device)]
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(low, min(high, 65536)), high))
    print("| row | numbers | processor time, s | steepest step | memory, MiB | steepest step |")
    print("|---|---|---|---:|---|---:|")
    with tempfile.TemporaryDirectory() as args.directory:
        failed = [name for name in names if not measure(args, name)]
    if "queue-pairs" not in names:
        print("queue-pairs: not measured, needs --device and --address", file=sys.stderr)
    if failed:
        sys.exit(f"faster than linear: {', '.join(failed)}")


if __name__ == "__main__":
    main()
