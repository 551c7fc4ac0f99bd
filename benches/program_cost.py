#!/usr/bin/env python3
"""Counts the instructions of one program on the model of an mlx5 adapter, and prints them.

With --count, these are the instructions of a message between two messages in the middle of a run,
without waiting (c/count.c). The program under test may have a server, which is a process of its
own. With --rounds, these are the instructions of a round of a program that runs both ends: two runs
with the environment variable ROUNDS are compared, so that only the start and the end are excluded,
and the threads of the model.

usage: program_cost.py --model libnic_model.so --count count.so [--messages 100:600]
                       [--server 'PROGRAM ARGUMENT…' --port PORT] PROGRAM ARGUMENT…
       program_cost.py --model libnic_model.so --rounds 20:120 PROGRAM ARGUMENT…
"""

import argparse
import glob
import os
import subprocess
import sys
import tempfile
import time

from message_cost import instructions, is_listening

# Seconds after which a run has failed.
TIMEOUT = 300
VALGRIND = ["valgrind", "--tool=callgrind"]


def environment(options, count=None, **others):
    preload = f"{count} {options.model}" if count else options.model
    link = {"NIC_MODEL_LINK": "ethernet"} if options.ethernet else {}
    # The first call of a function of a library would look for its address.
    others |= {"NIC_MODEL": "mlx5_0", "LD_PRELOAD": preload, "LD_BIND_NOW": "1"}
    return dict(os.environ, **link, **others)


def run(command, environment):
    """Runs a command to its end. Returns its output."""
    done = subprocess.run(command, env=environment, timeout=TIMEOUT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout


def message_instructions(options, directory):
    """Returns the instructions of a message, and the part of the polls that found nothing."""
    first, last = options.messages.split(":")
    report, profile = os.path.join(directory, "report"), os.path.join(directory, "profile")
    counted = environment(options, options.count, COUNT_FROM=first, COUNT_TO=last, COUNT_WAIT_MS="1000",
                          COUNT_REPORT=report)
    server = None
    if options.server:
        server = subprocess.Popen(options.server.split(), env=environment(options),
                                  stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + TIMEOUT
        while server and not is_listening(options.port):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"program_cost: {options.server} does not listen")
            time.sleep(0.05)
        output = run([*VALGRIND, "--collect-atstart=no", f"--callgrind-out-file={profile}",
                      *options.command], counted)
    finally:
        if server:
            server.kill()
            server.wait()
    if not os.path.exists(report):
        sys.exit(f"program_cost: too few messages:\n{output}")
    with open(report) as numbers:
        messages, polls, empty, _uncounted = map(int, numbers.read().split())
    excluded = [os.path.realpath(path) for path in (options.model, options.count)]
    return instructions(profile, excluded) / messages, empty / max(polls, 1)


def round_instructions(options, directory):
    """Returns the instructions of a round."""
    totals, model = [], os.path.realpath(options.model)
    rounds = [int(number) for number in options.rounds.split(":")]
    for number in rounds:
        profile = os.path.join(directory, f"profile.{number}")
        output = run([*VALGRIND, "--separate-threads=yes", f"--callgrind-out-file={profile}",
                      *options.command], environment(options, ROUNDS=str(number)))
        threads = glob.glob(profile + "-*")
        if not threads:
            sys.exit(f"program_cost: no profile:\n{output}")
        total = 0
        for thread in threads:
            own, all_of_it = instructions(thread, [model]), instructions(thread, [])
            # A thread that mostly runs the model is one of the model.
            total += own if own * 2 > all_of_it else 0
        totals.append(total)
    return (totals[1] - totals[0]) / (rounds[1] - rounds[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, type=os.path.realpath)
    parser.add_argument("--count", type=os.path.realpath)
    parser.add_argument("--messages", default="100:600", help="first and last counted message")
    parser.add_argument("--rounds", help="rounds of the two runs")
    parser.add_argument("--server", help="command of the server")
    parser.add_argument("--port", type=int, help="TCP port of the server")
    parser.add_argument("--ethernet", action="store_true", help="RoCE instead of InfiniBand")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.rounds:
            print(f"{round_instructions(options, directory):.0f} instructions for a round")
        else:
            cost, empty = message_instructions(options, directory)
            print(f"{cost:.0f} instructions for a message, {empty:.2f} of the polls found nothing")


if __name__ == "__main__":
    main()
