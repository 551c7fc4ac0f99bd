#!/usr/bin/env python3
"""Writes the licences of the crates whose code is in the programs of perftools.

MIT, BSD and ISC ask for their notices in each copy. Equal texts are written once, after the names of
their crates. A crate whose package has no text is listed with its licence and its authors.

usage: notices.py FILE
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

NAMES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
LINE = "-" * 79


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def linked():
    """Returns the packages in the programs, without those of this workspace."""
    tree = cargo("tree", "--locked", "-p", "perftools", "--edges", "no-build,no-dev,no-proc-macro",
                 "--prefix", "none", "--no-dedupe", "--format", "{p}")  # fmt: skip
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    packages = [p for p in metadata["packages"] if (p["name"], "v" + p["version"]) in names]
    return sorted((p for p in packages if p["source"]), key=lambda p: (p["name"], p["version"]))


def main():
    (out,) = sys.argv[1:]
    crates_of = collections.defaultdict(list)
    without = []
    for package in linked():
        name = f"{package['name']} {package['version']}"
        directory = pathlib.Path(package["manifest_path"]).parent
        files = sorted(f for f in directory.iterdir() if f.is_file() and NAMES.match(f.name))
        if not files:
            authors = ", ".join(package["authors"]) or "the authors of " + package["repository"]
            without.append(f"{name}: {package['license']}, copyright {authors}")
        for file in files:
            text = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
            crates_of[text.strip("\n")].append(name)
    parts = ["The programs contain code of these crates, under these licences."]
    for text, crates in sorted(crates_of.items(), key=lambda item: item[1]):
        names = "\n".join(dict.fromkeys(crates))
        parts.append(f"{LINE}\n{names}\n{LINE}\n\n{text}")
    parts.append(f"{LINE}\nCrates whose packages have no text\n{LINE}\n\n" + "\n".join(without))
    pathlib.Path(out).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
