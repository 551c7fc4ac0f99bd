#!/usr/bin/env python3
"""Shows where the processor time of bandwidth tests goes: in threads of the kernel, where software
devices work, or in both ends of rperf, which run on this host.

    benches/kernel_share.py --rperf target/release/rperf rxe0=10.99.0.1 siw0=10.98.0.1

Times are sampled in the middle of each test. Interrupts count for the thread that they interrupt.
"""

import argparse
import collections
import json
import os
import subprocess
import time

TESTS = {
    "send_bw": ["rc_bw"],
    "write_bw": ["--immediate", "off", "rc_rdma_write_bw"],
    "read_bw": ["rc_rdma_read_bw"],
}
# Flag of a kernel thread in /proc/PID/stat (PF_KTHREAD of the kernel).
KERNEL_THREAD = 0x200000
# Milliseconds of a test, and the seconds after which and for which times are sampled.
MILLIS, BEGIN, SPAN = 4000, 1.5, 2.0


def seconds_used(program):
    """Returns the processor seconds so far of the processes of `program`, and of kernel threads by
    the start of their names."""
    used = collections.Counter()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                stat = file.read()
        except OSError:
            continue  # the process has ended
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        ticks = int(fields[11]) + int(fields[12])
        if name == program:
            used[program] += ticks
        elif int(fields[6]) & KERNEL_THREAD:
            used[name.split("/")[0]] += ticks
    tick = os.sysconf("SC_CLK_TCK")
    return {name: ticks / tick for name, ticks in used.items()}


def measure(rperf, device, address, options, size):
    """Returns the bandwidth in bytes per second, and the number of processors that both ends of
    rperf used, and each kind of kernel thread."""
    # The kernel keeps 15 characters of a name.
    program = os.path.basename(rperf)[:15]
    command = [rperf, "-i", device, "-m", str(size), "-t", f"{MILLIS}ms", "--json", address]
    client = subprocess.Popen(command + options, stdout=subprocess.PIPE)
    time.sleep(BEGIN)
    begin, before = time.monotonic(), seconds_used(program)
    time.sleep(SPAN)
    after, elapsed = seconds_used(program), time.monotonic() - begin
    measured = json.loads(client.communicate()[0])["outcome"]["measured"]
    used = {name: (after[name] - before.get(name, 0)) / elapsed for name in after}
    return measured["summary"]["bandwidth"], used.pop(program), used


def main():
    """Prints a row for each test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rperf", required=True)
    parser.add_argument("--sizes", default="4096,65536,1048576")
    parser.add_argument("devices", nargs="+", metavar="DEVICE=ADDRESS")
    args = parser.parse_args()
    print("| device | test | bytes | MB/s | processors, rperf | kernel threads | largest | share |")
    print("|---|---|---:|---:|---:|---:|---|---:|")
    server = subprocess.Popen([args.rperf], stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        for device, address in (device.split("=") for device in args.devices):
            for test, options in TESTS.items():
                for size in map(int, args.sizes.split(",")):
                    bandwidth, ours, used = measure(args.rperf, device, address, options, size)
                    theirs = sum(used.values())
                    largest = max(used, key=used.get)
                    print(
                        f"| {device} | {test} | {size} | {bandwidth / 1e6:.0f} | {ours:.2f} "
                        f"| {theirs:.2f} | {largest} | {theirs / (ours + theirs):.0%} |",
                        flush=True,
                    )
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
