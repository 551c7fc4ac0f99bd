"""Checks the records of ci/guest/mesh: mesh.py DIRECTORY"""

import json
import sys
from pathlib import Path

HOSTS = [f"10.97.0.{number}" for number in range(1, 5)]
DIRECTORY = Path(sys.argv[1])
failures = []


def check(name, is_right, found):
    print(f"{'ok  ' if is_right else 'FAIL'}  {name}" + ("" if is_right else f": {found}"))
    if not is_right:
        failures.append(name)


def read(name):
    """Returns the record and the exit status of a run."""
    status = DIRECTORY / f"{name}.status"
    try:
        return json.loads((DIRECTORY / f"{name}.json").read_text()), int(status.read_text())
    except (OSError, ValueError) as error:
        log = DIRECTORY / f"{name}.log"
        print(log.read_text() if log.exists() else "", end="")
        check(name, False, error)
        return None, None


def outliers(record):
    """Returns the outliers as text, and the conclusion about each of them."""
    found = {}
    for o in record["outliers"]:
        where = f"{o['from']} > {o['to']}" if o["kind"] == "link" else f"{o['kind']} {o['host']}"
        found[where] = o["confirmation"]
    return found


def check_run(name, tests, devices, expected):
    """Checks that all pairs were measured, and that these outliers were found."""
    record, status = read(name)
    if record is None:
        return
    cells = record["cells"]
    # The name of a host's only endpoint is that of the host.
    suffixes = [f"/{device}" for device in devices] if len(devices) > 1 else [""]
    pairs = {(a + suffix, b + suffix) for suffix in suffixes for a in HOSTS for b in HOSTS if a != b}
    for test in tests:
        figures = {(c["from"], c["to"]): c.get("latency") or c.get("bandwidth") for c in cells if c["test"] == test}
        complete = set(figures) == pairs and all(figures.values())
        wrong = [c for c in cells if "error" in c] or f"{len(figures)} instead of {len(pairs)} pairs"
        check(f"{name}: {test} of all pairs of a device", complete, wrong)
    # The hosts share the processors of one machine. What is slow only for that reason is not slow
    # when it is measured again alone.
    found = sorted(where for where, conclusion in outliers(record).items() if conclusion == "confirmed")
    check(f"{name}: confirmed outliers", found == sorted(expected), record["outliers"])
    check(f"{name}: exit status", status == (3 if record["outliers"] else 0), status)
    latencies = sorted(c["latency"] / 1e6 for c in cells if "latency" in c)
    if latencies:
        middle = latencies[len(latencies) // 2]
        print(f"      latencies {latencies[0]:.1f} to {latencies[-1]:.1f} ms, median {middle:.1f} ms")


def check_dead_host():
    record, status = read("dead-host")
    if record is None:
        return
    dead = HOSTS[1]
    cells = record["cells"]
    check("dead host: all pairs have a cell", len(cells) == len(HOSTS) * (len(HOSTS) - 1), len(cells))
    failed = [c for c in cells if "error" in c]
    others = [c for c in failed if dead not in (c["from"], c["to"])]
    check("dead host: it costs its own cells", failed and not others, failed)
    check("dead host: exit status", status == 1, status)


def main():
    check_run("healthy", ["rc_lat", "rc_bw"], ["rxe0", "siw0"], [])
    check_run("slow-host", ["rc_lat"], ["rxe0"], [f"host {HOSTS[1]}"])
    slow = [HOSTS[0], HOSTS[2]]
    check_run("slow-link", ["rc_lat"], ["siw0"], [" > ".join(slow), " > ".join(slow[::-1])])
    left = DIRECTORY / "servers-left"
    check("dead coordinator: no server is left", left.exists(), "servers are left")
    check_dead_host()
    sys.exit(1 if failures else 0)


main()
