#!/usr/bin/env python3
"""Generates both sides of tests/layout.rs from the bindings, so that no structure, field or constant
is missing.

usage: layout.py DIRECTORY-OF-BINDINGS DIRECTORY-TO-WRITE [NEWER-HEADERS]

Writes table.rs, the values of Rust, and probe.c, a program that prints the values of C in the same
order. With the directory NEWER-HEADERS, writes newer_table.rs and newer_probe.c for the modules
that were generated from them.

Omitted:
- opaque structures, because C declares them without a body;
- the size of an anonymous union or structure, because C cannot name it (the offsets of its members
  and of the following fields are compared);
- bit-fields: there are none, and this script fails if a header adds one.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

HEADERS = [
    "infiniband/verbs.h", "infiniband/tm_types.h", "infiniband/sa.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h",
    "infiniband/umad.h", "infiniband/umad_types.h", "infiniband/umad_sm.h", "infiniband/umad_sa.h",
    "infiniband/umad_sa_mcm.h", "infiniband/umad_cm.h", "infiniband/efadv.h", "infiniband/mlx5dv.h",
]
KEYWORDS = {"type_": "type", "priv_": "priv", "match_": "match", "ref_": "ref", "in_": "in"}

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
    """Returns the C name of the type, with its tag if it has one."""
    for tag in ("struct", "union", "enum"):
        if re.search(rf"\b{tag}\s+{name}\b", preprocessed):
            return f"{tag} {name}"
    return name


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
        elif not re.match(r"\s*(use |impl )", text):
            raise SystemExit(f"unexpected item: {text}")

rust, c = [], []


def row(label, rust_expr, c_expr):
    rust.append(f'("{label}", {rust_expr} as i64),')
    c.append(f'    row("{label}", (long long)({c_expr}));')


def members(top, c_top, name, rust_path, c_path):
    """Adds the rows of each member of `name`, which is located at `rust_path` in the structure `top`."""
    for field, kind in structs[name]:
        if "_bitfield" in field:
            raise SystemExit(f"{name}: bit-fields are not supported")
        # Newer headers have other fields in these bytes.
        if field == "reserved" and name.startswith("efadv_"):
            continue
        anonymous = field.startswith("__bindgen_anon_")
        r = f"{rust_path}{field}"
        p = c_path if anonymous else f"{c_path}{KEYWORDS.get(field, field)}"
        if not anonymous:
            label = f"{c_top}.{p}"
            row(f"offsetof {label}", f"offset_of!({top}, {r})", f"offsetof({c_top}, {p})")
            # All function pointers have the same size.
            size = "usize" if kind.startswith("::core::option::Option<") else kind
            if not kind.endswith("; 0]"):  # a flexible array member has no size in C
                row(f"sizeof {label}", f"size_of::<{size}>()", f"sizeof((({c_top} *)0)->{p})")
        if "__bindgen_ty_" in kind:
            inner = re.search(r"\w+__bindgen_ty_\w+", kind)[0]
            if kind != inner:
                raise SystemExit(f"{name}.{field}: arrays of unnamed structures are not supported")
            members(top, c_top, inner, f"{r}.", p if anonymous else f"{p}.")


opaque = []
for name, body in structs.items():
    if [f for f, _ in body] in (["_unused"], ["_address"]):
        opaque.append(name)
    elif "__bindgen_ty_" not in name:
        ct = c_type(name)
        row(f"sizeof {ct}", f"size_of::<{name}>()", f"sizeof({ct})")
        row(f"alignof {ct}", f"align_of::<{name}>()", f"_Alignof({ct})")
        members(name, ct, name, "", "")

for name, kind in aliases:
    ct = c_type(name)
    # Function pointers and aliases of structures only have a size; integers also have a sign.
    row(f"sizeof {ct}", f"size_of::<{name}>()", f"sizeof({ct})")
    if kind.startswith("::core::ffi::c_"):
        row(f"unsigned {ct}", f"({name}::MIN == 0)", f"({ct})-1 > ({ct})0")

# Types that the headers rename with macros; alias.rs defines them.
renamed = "" if newer else (pathlib.Path(sys.argv[1]).parent / "alias.rs").read_text()
for original, name in re.findall(r"(\w+) as (\w+)", renamed):
    if original in opaque:
        raise SystemExit(f"{name}: opaque")
    tag = c_type(original).rpartition(" ")[0]
    row(f"sizeof {tag} {name}", f"size_of::<{name}>()", f"sizeof({tag} {name})")
# Pointers, whose address is not a constant: layout.rs compares those of Rust with usize::MAX.
for name in () if newer else ("IBV_ALLOCATOR_USE_DEFAULT", "__VERBS_ABI_IS_EXTENDED"):
    row(name, "usize::MAX", name)

if newer:
    # inline/wr.rs appends the function to the structure of the older headers.
    row("offsetof struct ibv_qp_ex.wr_flush", "size_of::<ibv_qp_ex>()", "offsetof(struct ibv_qp_ex, wr_flush)")

rust_strings, c_strings = [], []
for name, kind in constants:
    if kind.endswith("CStr"):
        rust_strings.append(f'("{name}", {name}),')
        c_strings.append(f'    string("{name}", {name});')
    else:
        row(name, name, name)

out = pathlib.Path(sys.argv[2])
types = sorted(split.LIBC - {"timespec", "FILE"}) + ["timespec"]
types = ", ".join(t for t in types if re.search(rf"\b{t}\b", "".join(rust)))
libc = f"use libc::{{{types}}};\n" if types else ""
(out / f"{prefix}table.rs").write_text(f"""// Generated by rdma-sys/regenerate: do not edit.

use core::ffi::CStr;
use core::mem::offset_of;

{libc}use rdma_sys::*;

/// Sizes, alignments, offsets, signs and values.
pub(crate) const NUMBERS: &[(&str, i64)] = &[
{chr(10).join(rust)}
];

/// Constants that are strings.
pub(crate) const STRINGS: &[(&str, &CStr)] = &[
{chr(10).join(rust_strings)}
];

/// All functions that the bindings declare. Taking the address makes the linker resolve it.
pub(crate) fn functions() -> Vec<(&'static str, *const ())> {{
    vec![
{chr(10).join(f'        ("{f}", {f} as *const ()),' for f in functions)}
    ]
}}
""")
(out / f"{prefix}probe.c").write_text(f"""/* Generated by rdma-sys/regenerate: do not edit. Prints the values of C; table.rs has those of Rust. */
#include <stddef.h>
#include <stdio.h>
{chr(10).join(f"#include <{h}>" for h in HEADERS)}

static void row(const char *name, long long value) {{ printf("%s\\t%lld\\n", name, value); }}
static void string(const char *name, const char *value) {{ printf("%s\\t%s\\n", name, value); }}

int main(void)
{{
{chr(10).join(c)}
{chr(10).join(c_strings)}
    return 0;
}}
""")
print(
    f"layout: {sum(1 for n in structs if '__bindgen_ty_' not in n) - len(opaque)} structures, {len(aliases)} aliases, "
    f"{len(constants)} constants, {len(functions)} functions, {len(rust)} numbers; opaque: {', '.join(opaque)}",
    file=sys.stderr,
)
