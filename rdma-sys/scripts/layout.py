#!/usr/bin/env python3
"""Lists what tests/layout.rs compares, so that no structure, field or constant of the bindings is
missing.

usage: layout.py DIRECTORY-OF-BINDINGS DIRECTORY-TO-WRITE [NEWER-HEADERS]

Writes table.rs. With the directory NEWER-HEADERS, writes newer_table.rs for the modules that were
generated from them.

Omitted:
- opaque structures, because C declares them without a body;
- the size of an anonymous union or structure, because C cannot name it (the offsets of its members
  and of the following fields are compared);
- bit-fields: there are none, and this script fails if a header adds one.
"""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import textwrap

HEADERS = [
    "infiniband/verbs.h", "infiniband/tm_types.h", "infiniband/sa.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h",
    "infiniband/umad.h", "infiniband/umad_types.h", "infiniband/umad_sm.h", "infiniband/umad_sa.h",
    "infiniband/umad_sa_mcm.h", "infiniband/umad_cm.h", "infiniband/efadv.h", "infiniband/mlx5dv.h",
]

MODULES = ["verbs", "cm", "umad", "efa", "mlx5"]
newer = sys.argv[3] if len(sys.argv) > 3 else None
prefix, cc = ("newer_", ["cc", "-I", newer]) if newer else ("", ["cc"])
if newer:
    HEADERS, MODULES = HEADERS[:5], ["newer", "newer_cm"]

here = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("split", here / "split.py")
split = importlib.util.module_from_spec(spec)
spec.loader.exec_module(split)

preprocessed = subprocess.run(
    [*cc, "-E", "-P", "-x", "c", "-"], input="".join(f"#include <{h}>\n" for h in HEADERS),
    capture_output=True, text=True, check=True,
).stdout


def c_type(name):
    """Returns the name of the type after its tag in C, or after `typedef` if it has none."""
    for tag in ("struct", "union", "enum"):
        if re.search(rf"\b{tag}\s+{name}\b", preprocessed):
            return f"{tag} {name}"
    return f"typedef {name}"


def fields(body):
    """Returns (name, type) of each field of a structure's body."""
    out, depth, start = [], 0, 0
    text = body + ","
    for i, ch in enumerate(text):
        if ch in "([{<":
            depth += 1
        elif ch in ")]}" or (ch == ">" and text[i - 1] != "-"):
            depth -= 1
        elif ch == "," and depth == 0:
            field = " ".join(text[start:i].split())
            start = i + 1
            if field:
                m = re.fullmatch(r"(?:pub )?(\w+): (.*)", field)
                out.append((m[1], m[2]))
    return out


structs, aliases, constants, functions = {}, [], [], []
for module in MODULES:
    for item in split.items((pathlib.Path(sys.argv[1]) / f"{module}.rs").read_text()):
        text = "\n".join(l for l in item if not l.startswith(("//", "#[")))
        if "functions! {" in text:
            functions += [split.function_name(f) for f in split.functions(text.splitlines())]
        elif m := re.match(r"pub (?:struct|union) (\w+) \{(.*)\}$", text, re.S):
            structs[m[1]] = fields(m[2])
        elif m := re.match(r"pub type (\w+) =\s*(.*);$", text, re.S):
            aliases.append((m[1], m[2]))
        elif m := re.match(r"pub const (\w+):\s+([^=]+) =", text):
            constants.append((m[1], m[2].strip()))
        elif not re.match(r"\s*(use |zeroed! )", text):
            raise SystemExit(f"unexpected item: {text}")


def members(name, prefix=""):
    """Returns the path of each member of `name`, which is located at `prefix` in its structure."""
    out = []
    for field, kind in structs[name]:
        if "_bitfield" in field:
            raise SystemExit(f"{name}: bit-fields are not supported")
        # Newer headers have other fields in these bytes.
        if field == "reserved" and name.startswith("efadv_"):
            continue
        if not field.startswith("__bindgen_anon_"):
            out.append(prefix + field)
        if "__bindgen_ty_" in kind:
            inner = re.search(r"\w+__bindgen_ty_\w+", kind)[0]
            if kind != inner:
                raise SystemExit(f"{name}.{field}: arrays of unnamed structures are not supported")
            out += members(inner, f"{prefix}{field}.")
    return out


def filled(words, before="", after=""):
    """Returns the words with commas between them, in lines of 100 columns."""
    text = before + ", ".join(word.replace(" ", "\0") for word in words) + after
    lines = textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")
    return lines.replace("\0", " ")


opaque = [n for n, body in structs.items() if [f for f, _ in body] in (["_unused"], ["_address"])]
records = [
    filled(members(name), f"{c_type(name)} {{ ", " }")
    for name in structs
    if name not in opaque and "__bindgen_ty_" not in name
]
# Function pointers and aliases of structures only have a size; integers also have a sign.
integers = [c_type(name) for name, kind in aliases if kind.startswith("c_")]
others = [c_type(name) for name, kind in aliases if not kind.startswith("c_")]
# Types that the headers rename with macros; alias.rs defines them.
renamed = "" if newer else (pathlib.Path(sys.argv[1]).parent / "alias.rs").read_text()
for original, name in re.findall(r"(\w+) as (\w+)", renamed):
    if original in opaque:
        raise SystemExit(f"{name}: opaque")
    others.append(f"{c_type(original).partition(' ')[0]} {name}")
strings = [name for name, kind in constants if kind.endswith("CStr")]
numbers = [name for name, kind in constants if not kind.endswith("CStr")]

out = pathlib.Path(sys.argv[2])
(out / f"{prefix}table.rs").write_text(f"""// Generated by rdma-sys/regenerate: do not edit.

use rdma_sys::*;

use super::*;

pub(crate) const TABLE: Table = Table {{
headers: &[
{filled(map(json.dumps, HEADERS))}
],
structures: structures! {{
{chr(10).join(records)}
}},
integers: integers! {{
{filled(integers)}
}},
other_types: other_types! {{
{filled(others)}
}},
numbers: numbers! {{
{filled(numbers)}
}},
strings: strings! {{
{filled(strings)}
}},
}};

/// All functions that the bindings declare. Taking the address makes the linker resolve it.
pub(crate) fn functions() -> Vec<(&'static str, *const ())> {{
    functions! {{
{filled(functions)}
    }}
}}
""")
