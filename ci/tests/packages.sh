#!/usr/bin/env bash
# Tests the packages of the published crates: packages them, unpacks them outside the tree and
# checks them there with the oldest supported Rust, with the versions of Cargo.lock. Their
# dependencies on each other are resolved to the unpacked directories.
#
# usage: ci/tests/packages.sh check      files, checks with several sets of features, docs.rs
#        ci/tests/packages.sh coexist    a program that also has another project's crate `ibverbs`
#        ci/tests/packages.sh readme     the program and the commands of the README
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
. ci/lib/common.sh
. ci/lib/tools.sh
. ci/lib/rust.sh

# Cargo's target directory. The packages themselves are removed from it at the end, because their
# paths differ from run to run.
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages
OUT=$(mktemp -d "${TMPDIR:-/tmp}/rdma-packages.XXXXXX")
# Outside the tree, rust-toolchain.toml does not apply.
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-$(rust_version)}

clean_up() {
    local name
    if [[ -e $OUT/Cargo.lock ]]; then
        for name in "${PACKAGES[@]}"; do
            # Fails for a crate that the program of `coexist` does not use.
            in_out cargo clean --quiet -p "$name" 2>/dev/null || true
        done
    fi
    rm -rf "$OUT"
}

# Runs a command in the directory of the unpacked packages.
in_out() { (cd "$OUT" && CARGO_TARGET_DIR=$TARGET "$@"); }

# Prints the name, version and directory of each crate that is published, lowest first.
published() {
    cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, os, sys
crates = {p["name"]: p for p in json.load(sys.stdin)["packages"] if p["publish"] != []}
done = []
def visit(crate):
    for dependency in crate["dependencies"]:
        if dependency["kind"] is None and dependency["name"] in crates:
            visit(crates[dependency["name"]])
    if crate not in done:
        done.append(crate)
for crate in crates.values():
    visit(crate)
for crate in done:
    print(crate["name"], crate["version"], os.path.dirname(crate["manifest_path"]))
'
}

# Packages all published crates and unpacks them to OUT. Sets PACKAGES to their names and DIRS to
# their directories.
unpack() {
    local log=$OUT/log name version source list
    PACKAGES=() DIRS=()
    list=$(published)
    while read -r name version source; do
        PACKAGES+=("$name")
        DIRS+=("$name-$version")
        SOURCES[$name]=$source
    done <<<"$list"
    CARGO_TARGET_DIR=$TARGET cargo package --no-verify --allow-dirty --locked "${PACKAGES[@]/#/-p}" >"$log" 2>&1 ||
        { cat "$log" && die "cargo package failed"; }
    # Cargo only warns about missing metadata, but crates.io rejects it.
    ! grep 'manifest has no' "$log" || die "a manifest is incomplete: see above"
    for name in "${DIRS[@]}"; do
        tar -xzf "$TARGET/package/$name.crate" -C "$OUT"
    done
}

# Prints the table that resolves the packages to the unpacked directories.
patch_table() {
    local i
    printf '\n[patch.crates-io]\n'
    for i in "${!PACKAGES[@]}"; do
        printf '%s = { path = "%s/%s" }\n' "${PACKAGES[i]}" "$OUT" "${DIRS[i]}"
    done
}

check_files() {
    local i dir file
    for i in "${!PACKAGES[@]}"; do
        dir=$OUT/${DIRS[i]}
        for file in LICENSE-MIT LICENSE-APACHE; do
            cmp "$file" "$dir/$file" || die "${PACKAGES[i]}: the package needs $file"
        done
        cmp "${SOURCES[${PACKAGES[i]}]}/README.md" "$dir/README.md" || die "${PACKAGES[i]}: the package needs README.md"
        [[ ! -e $dir/tests ]] || die "${PACKAGES[i]}: tests belong to the repository, not to the package; check \`include\`"
        printf '%-16s %3d files, %4d KiB packed\n' "${PACKAGES[i]}" \
            "$(find "$dir" -type f | wc -l)" $(($(stat -c %s "$TARGET/package/${DIRS[i]}.crate") / 1024))
    done
}

check() {
    local name oldest
    oldest=$(msrv)
    install_toolchain "$oldest" >/dev/null 2>&1 || die "installing Rust $oldest failed"
    unpack
    check_files
    export RUSTUP_TOOLCHAIN=$oldest
    cp Cargo.lock "$OUT"
    {
        printf '[workspace]\nresolver = "3"\nmembers = ['
        printf '"%s", ' "${DIRS[@]}"
        printf ']\n'
        patch_table
    } >"$OUT/Cargo.toml"
    # One at a time with its default features, so that no crate relies on the features that another
    # one enables. The crates of perftools are only used together. The files of the packages decide
    # whether this works: the code is that of the tree.
    for name in "${PACKAGES[@]}"; do
        [[ $name == perftools-* ]] || in_out cargo check --quiet -p "$name"
    done
    in_out cargo check --quiet --workspace --exclude 'perftools*' --all-features
    # Other processors and another C library. Nothing is linked.
    for name in aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu x86_64-unknown-linux-musl; do
        rustup target add --toolchain "$oldest" "$name" 2>/dev/null || die "rustup target add $name failed"
        RDMA_SYS_NO_PKG_CONFIG=1 in_out cargo check --quiet --target "$name" --workspace --exclude 'perftools*' --all-features
    done
    CARGO_TARGET_DIR=$TARGET cargo check --quiet --locked -p examples -p nvme-host
    # docs.rs has none of the libraries. Only rdma-verbs-sys looks for them.
    DOCS_RS=1 PKG_CONFIG=false in_out cargo doc --quiet --no-deps -p rdma-verbs-sys -p ibumad --all-features
    echo "packages: ${#PACKAGES[@]} checked outside the tree with Rust $oldest"
}

# The program of the README, in a project that is made by the commands of the README, from the last
# commit of this repository. It runs on rxe0.
readme() {
    local commands program
    commands=$(sed -n '/^## The library/,$ { /^cargo new/p; /^cargo add/p }' README.md)
    # shellcheck disable=SC2016 # accents
    program=$(sed -n '/^```rust/,/^```/ { /^```/d; p }' README.md)
    commands=${commands//https:\/\/github.com\/rdma-rs\/rdma-rs/file:\/\/$PWD}
    (cd "$OUT" && eval "$commands" && cat >src/main.rs <<<"$program" && cargo build --quiet)
    ci/lab run -- "$OUT/hello/target/debug/hello" | tee "$OUT/printed"
    grep 'Recv: Some' "$OUT/printed" >/dev/null || die "the program of README.md received nothing"
}

# The crate `ibverbs-sys` builds rdma-core with cmake and uses libclang.
coexist() {
    ensure_packages coexist
    unpack
    cp -r ci/tests/coexist/. "$OUT"
    patch_table >>"$OUT/Cargo.toml"
    in_out cargo build
    ci/lab run -- "$TARGET/debug/coexist" rxe0
}

declare -A SOURCES
trap clean_up EXIT
case ${1:-} in
check | coexist | readme) "$1" ;;
*) die "usage: ci/tests/packages.sh check|coexist|readme" ;;
esac
