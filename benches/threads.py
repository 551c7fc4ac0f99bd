#!/usr/bin/env python3
"""Compares one pair of threads on one processor with two pairs on two processors, in alternating
rounds of rperf with both ends on this host: two pairs in one process, and in two processes that
share nothing but the kernel.

    benches/threads.py --rperf target/release/rperf tcp_bw
    benches/threads.py --rperf target/release/rperf --device rxe0 rc_bw rc_rdma_write_bw

The processor time is that of rperf, or with --device that of the whole machine, because drivers
use threads of the kernel. On a machine that other programs use, the processor time of a gigabyte
shows more than the bandwidth: with a lock between the pairs, one process would need more of it than
two processes.
"""

import argparse
import json
import resource
import statistics
import subprocess
import time


def processor_seconds(whole_machine):
    """Returns the processor seconds used so far by child processes or by the machine."""
    if not whole_machine:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / 100


def command(args, test, processors):
    """Returns the command of one process with a pair for each processor. Both ends of a pair are on
    the same processor: rperf counts the processors of the server's threads from the last one."""
    words = [args.rperf, "--json", "--time", args.time]
    words += ["--local-cpu-affinity", ",".join(processors)]
    words += ["--remote-cpu-affinity", ",".join(reversed(processors))]
    if args.device:
        words += ["--id", args.device, "--threads", str(len(processors))]
    elif len(processors) > 1:
        words += ["--parallel", str(len(processors))]
    return words + [test]


def run(args, test, processes):
    """Runs processes at the same time, each with the processors of its pairs. Returns the sum of
    their bandwidths in bytes per second, and the processor seconds of a gigabyte."""
    before = processor_seconds(bool(args.device))
    started = [
        subprocess.Popen(command(args, test, processors), stdout=subprocess.PIPE)
        for processors in processes
    ]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    used = processor_seconds(bool(args.device)) - before
    bandwidth = total = 0
    for output in outputs:
        measured = json.loads(output)["outcome"]["measured"]
        stats = [measured["local_stats"], measured["remote_stats"]]
        total += max(side[way]["bytes"] for side in stats for way in ("sent", "received"))
        bandwidth += measured["summary"]["bandwidth"]
    return bandwidth, used / (total / 1e9)


def spread(values, digits=2):
    """Returns the median, the smallest and the largest value."""
    values = sorted(values)
    return (
        f"{statistics.median(values):.{digits}f} "
        f"({values[0]:.{digits}f}..{values[-1]:.{digits}f})"
    )


def main():
    """Prints a row for each test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rperf", required=True)
    parser.add_argument("--device", help="RDMA device; without it the tests are over sockets")
    parser.add_argument("--cpus", default="0,1", help="the two processors")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--time", default="1s", help="time of each test")
    parser.add_argument("tests", nargs="+")
    args = parser.parse_args()
    first, second = args.cpus.split(",")
    cases = {"1 pair": [[first]], "2": [[first, second]], "1 + 1": [[first], [second]]}
    print("| | test | " + " | ".join(f"{case}, MB/s" for case in cases), end=" | ")
    print("2 / 1 | 2 / (1 + 1) | " + " | ".join(f"{case}, CPU s/GB" for case in cases), end=" | ")
    print("2 / 1 | 2 / (1 + 1) |")
    print("|---|---|" + "---:|" * 10)
    for test in args.tests:
        rounds = []
        for number in range(args.rounds):
            results = {}
            for case in list(cases)[:: (-1) ** number]:
                results[case] = run(args, test, cases[case])
                time.sleep(0.1)
            rounds.append(results)
        cells = [args.device or "sockets", test]
        for what, scale, digits in ((0, 1e6, 0), (1, 1, 3)):
            for case in cases:
                values = [results[case][what] / scale for results in rounds]
                cells.append(f"{statistics.median(values):.{digits}f}")
            for case in ("1 pair", "1 + 1"):
                cells.append(spread([results["2"][what] / results[case][what] for results in rounds]))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
