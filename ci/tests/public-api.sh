#!/usr/bin/env bash
# Compares the public API of the published libraries with the files api.txt in their directories:
# public-api.sh [--update]. A change of the API is then visible in the change itself, and needs
# `--update` to be accepted.
#
# The JSON of rustdoc is not stable. So it comes from the toolchain of rust-toolchain.toml, and the
# version of cargo-public-api is the one that reads its format: update both together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. ci/lib/common.sh
. ci/lib/tools.sh

# Directory → library, and the package in between.
readonly CRATES=(rdma-types:rdma-types:rdma_types ibverbs:rdma-verbs:ibverbs rdmacm:rdmacm:rdmacm
    messenger:rdma-messenger:messenger rdma-transfer:rdma-transfer:rdma_transfer ibumad:ibumad:ibumad
    gpu-memory:gpu-memory:gpu_memory rdma-noise:rdma-noise:rdma_noise)
readonly FEATURES='rdma-verbs/serde rdma-verbs/tokio rdma-verbs/tracing rdma-verbs/efa rdma-verbs/mlx5 rdmacm/tokio rdma-messenger/tokio rdma-messenger/bytes'

# Prints the signatures that break a rule of docs/conventions.md, and fails if there is one. Calls
# that do not wait have no time limit; one without a limit returns an Option; a limited one does not
# tell by a bool that the time is up; parts of memory are selected with ranges.
check_conventions() {
    ! grep -nE \
        -e 'fn .*::try_[a-z_]+\(.*Duration' \
        -e 'fn .*Option<core::time::Duration>\) ->' \
        -e 'fn .*Duration.*\) -> .*Result<bool>' \
        -e 'fn .*::(slice|get|get_mut)\((&?(mut )?self, )?(usize|u64), (usize|u64)\)' \
        -- */api.txt | grep -vE 'Option<core::time::Duration>\) -> .*Result<(core::option::Option<|Self::Output)'
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
packages=()
for crate in "${CRATES[@]}"; do
    IFS=: read -r _ package _ <<<"$crate"
    packages+=(-p "$package")
done

with_cache_lock ensure_cargo_tool cargo-public-api "$CARGO_PUBLIC_API_VERSION"
# Only rustdoc is allowed to use unstable options. Otherwise cargo would build all crates again.
RUSTDOC=$PWD/ci/lib/unstable-rustdoc RUSTDOCFLAGS='-Z unstable-options --output-format json' \
    cargo doc --quiet --no-deps --lib --locked --features "$FEATURES" "${packages[@]}"

status=0
for crate in "${CRATES[@]}"; do
    IFS=: read -r directory _ library <<<"$crate"
    "$(cargo_tool cargo-public-api "$CARGO_PUBLIC_API_VERSION")" public-api -sss --color never \
        --rustdoc-json "$target/doc/$library.json" |
        awk '!seen[$0]++' >"$target/doc/$library.txt" # it repeats what is reexported
    if [[ ${1:-} == --update ]]; then
        cp "$target/doc/$library.txt" "$directory/api.txt"
    elif ! diff -u "$directory/api.txt" "$target/doc/$library.txt"; then
        status=1
    fi
done
((status == 0)) || die "the public API has changed" "help: if that is intended, run ci/tests/public-api.sh --update"
check_conventions || die "the public API does not keep docs/conventions.md: see above"
