"""Runs rdma-core's pyverbs tests: pyverbs.py DEVICE MINIMUM PYVERBS TESTS

PYVERBS is the directory that contains the package pyverbs, TESTS that of rdma-core's tests. Prints
the numbers of each test module. Fails if a test fails, or if fewer than MINIMUM tests pass.
"""

import collections
import pathlib
import random
import sys
import unittest


class Result(unittest.TextTestResult):
    """Counts the tests that pass, by module."""

    passed = collections.Counter()

    def addSuccess(self, test):  # noqa: N802, the name is that of unittest
        super().addSuccess(test)
        self.passed[module(test)] += 1


def module(test):
    return test.id().split(".")[1] if test.id().startswith("tests.") else test.id()


def main():
    device, minimum, pyverbs = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    tests = pathlib.Path(sys.argv[4])
    sys.path[:0] = [pyverbs, str(tests), str(tests.parent)]
    sys.argv = ["pyverbs", "--dev", device, "--port", "1", "--gid", "0"]
    from args_parser import parser

    parser.parse_args()
    names = sorted(f"tests.{path.stem}" for path in tests.glob("test_*.py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    # Some tests choose the type of a queue pair, and are skipped if the device lacks it.
    random.seed(1)
    result = unittest.TextTestRunner(verbosity=0, resultclass=Result).run(suite)
    skipped = collections.Counter(module(test) for test, _ in result.skipped)
    print("| module | passed | skipped |\n|---|---|---|")
    for name in sorted(Result.passed | skipped):
        print(f"| `{name}` | {Result.passed[name]} | {skipped[name]} |")
    wrong = result.failures + result.errors
    for test, why in wrong:
        print(f"FAILED {test.id()}: {why.strip().splitlines()[-1]}")
    total = sum(Result.passed.values())
    print(f"pyverbs on {device}: {total} passed, {len(result.skipped)} skipped, {len(wrong)} failed")
    if total < minimum:
        print(f"at least {minimum} must pass")
    sys.exit(bool(wrong) or total < minimum)


main()
