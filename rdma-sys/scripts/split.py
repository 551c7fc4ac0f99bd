#!/usr/bin/env python3
"""Converts the output of one run of bindgen to one module of rdma-sys.

usage: split.py [--macro NAME] LIBRARY BINDGEN-OUTPUT [EARLIER-MODULE ...] > MODULE

bindgen must see every type that a header depends on, because it otherwise cannot determine which
structures may be `Copy` or `Default`. Therefore each run emits all types, and this script removes
those that are already defined: by the libc crate (socket addresses, timespec) and by the modules
given as EARLIER-MODULE. The new module imports the items of the latter. Its functions are declared
as those of LIBRARY, a variant of `rdma_sys::Library`, with the macro NAME of `src/library.rs`. The
default is `functions`.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

# Types that the libc crate defines under the same names, and types internal to glibc.
LIBC = {"sockaddr", "sockaddr_in", "sockaddr_in6", "sockaddr_storage", "timespec", "pthread_mutex_t", "pthread_cond_t",
        "socklen_t", "FILE", "off_t"}
GLIBC_INTERNAL = {
    "in_addr", "in6_addr", "in6_addr__bindgen_ty_1", "in_addr_t", "in_port_t", "sa_family_t",
    "__IncompleteArrayField", "__socklen_t", "__time_t", "__syscall_slong_t", "ssize_t", "__ssize_t",
    "_IO_FILE", "_IO_marker", "_IO_codecvt", "_IO_wide_data", "_IO_lock_t", "__off_t", "__off64_t",
}


def items(text):
    """Top-level items, each a list of lines, in order."""
    out, cur, depth = [], [], 0
    for line in text.splitlines():
        if not cur and not line.strip():
            continue
        cur.append(line)
        depth += line.count("{") + line.count("(") + line.count("[")
        depth -= line.count("}") + line.count(")") + line.count("]")
        if depth == 0 and line.endswith(("}", ";")):
            out.append(cur)
            cur = []
    assert not cur, cur
    return out


def name(item):
    for line in item:
        m = re.match(r"(?:#\[repr.*\] )?(?:pub (?:struct|union|type|const|static) |impl(?:<T>)? (?:[\w:]+(?:<T>)? for )?)(\w+)", line)
        if m:
            return m.group(1)
    return None


def functions(block):
    """The functions of an `extern` block, each a list of lines."""
    out, cur = [], []
    for line in block[1:-1]:
        cur.append(line)
        if line.endswith(";"):
            out.append(cur)
            cur = []
    assert not cur, cur
    return out


def function_name(lines):
    return re.search(r"pub fn (\w+)", "\n".join(lines)).group(1)


def defined(path):
    names, funcs = set(), set()
    for item in items(open(path).read()):
        if "functions! {" in item[0]:
            funcs |= {function_name(f) for f in functions(item)}
        elif name(item):
            names.add(name(item))
    return names, funcs


def shortened(text):
    """Replaces the paths of items that are imported or in the prelude by their names."""
    return text.replace("::core::ffi::", "").replace("::core::option::Option<", "Option<")


def formatted(text):
    command = ["rustfmt", "--edition", "2024"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main():
    macro = "functions"
    if sys.argv[1] == "--macro":
        macro = sys.argv[2]
        del sys.argv[1:3]
    earlier, earlier_funcs = {}, set()
    for path in sys.argv[3:]:
        module = pathlib.Path(path).stem.removesuffix("-x86_64")
        earlier[module], funcs = defined(path)
        earlier_funcs |= funcs
    drop = set().union(*earlier.values()) | LIBC | GLIBC_INTERNAL

    kept, zeroed, funcs = [], [], []
    for item in items(open(sys.argv[2]).read()):
        if 'extern "C" {' in item[0]:
            funcs += [f for f in functions(item) if function_name(f) not in earlier_funcs]
            continue
        n = name(item)
        if n is None:
            raise SystemExit(f"unexpected item: {item}")
        # Aliases of anonymous C enumerations have arbitrary numbers that change when one is added.
        if n in drop or re.fullmatch(r"_bindgen_ty_\d+", n):
            continue
        # Where bindgen cannot derive it, it sets all bytes to zero. So does the macro `zeroed`.
        if item[0].startswith("impl Default for "):
            zeroed.append(n)
            continue
        kept.append(item)

    body = "\n".join("\n".join(i) for i in kept)
    body = re.sub(r": _bindgen_ty_\d+ =", ": ::core::ffi::c_uint =", body)
    if zeroed:
        body += "\nzeroed! {\n" + textwrap.indent(textwrap.fill(" ".join(zeroed), 96), "    ") + "\n}"
    # rustfmt formats an `extern` block, but not the argument of a macro.
    block = 'unsafe extern "C" {\n' + "\n".join("\n".join(f) for f in funcs) + "\n}\n"
    ffi = sorted(set(re.findall(r"::core::ffi::(\w+)", body + block)))
    block = formatted(shortened(block)).split("\n", 1)[1]
    body = f"{shortened(body)}\ncrate::library::{macro}! {{ {sys.argv[1]};\n{block}"
    # Flexible array members: only their offset is needed.
    body = re.sub(r"__IncompleteArrayField<(\w+)>", r"[\1; 0]", body)
    # The field is at an odd offset of a packed structure that is aligned to 4 bytes. Rust cannot
    # express that, and bindgen aligns the field.
    body = body.replace("dci_stream_channel_id: __be16", "dci_stream_channel_id: [u8; 2usize]")
    # clang evaluates these 64-bit macros as C does, but bindgen chooses the smallest type and loses
    # the sign.
    body = re.sub(
        r"(pub const RDMA_IB_(?:IP_)?P\w+): \w+ = (-?\d+);",
        lambda m: f"{m[1]}: u64 = {int(m[2]) % 2**64:#x};",
        body,
    )
    # `ssize_t` without glibc's chain of aliases.
    body = re.sub(r"\b(__)?ssize_t\b", "isize", body)

    libc = sorted(n for n in LIBC if re.search(rf"\b{n}\b", body))
    head = "// Generated by rdma-sys/regenerate: do not edit.\n\n"
    head += f"use core::ffi::{{{', '.join(ffi)}}};\n\n"
    if libc:
        head += f"use libc::{{{', '.join(libc)}}};\n"
    for module, names in earlier.items():
        used = sorted(n for n in names if re.search(rf"\b{n}\b", body))
        if used:
            head += f"use super::{module}::{{{', '.join(used)}}};\n"
    sys.stdout.write(head + "\n" + body)


if __name__ == "__main__":
    main()
