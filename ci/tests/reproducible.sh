#!/usr/bin/env bash
# Builds the packages twice: in two directories, with two homes, umasks and time zones. Fails if
# they differ.
#
# usage: ci/tests/reproducible.sh [PROFILE [FORMAT…]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. ci/lib/common.sh
profile=${1:-dist}
shift || true
work=$(mktemp -d "${TMPDIR:-/tmp}/rdma-reproducible.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Builds the packages of HEAD as another user would: build DIR UMASK ZONE FORMAT…
build() {
    local dir=$work/$1 home=$work/$1-home mask=$2 zone=$3
    shift 3
    mkdir -p "$(dirname "$dir")" "$home/cargo"
    git clone --quiet . "$dir"
    # The same downloads, under another name.
    cp -al "${CARGO_HOME:-$HOME/.cargo}/registry" "$home/cargo" 2>/dev/null || true
    (
        cd "$dir"
        umask "$mask"
        unset CARGO_TARGET_DIR
        export CARGO_HOME=$home/cargo TZ=$zone XDG_CACHE_HOME=${LAB_CACHE%/rdma-lab}
        ci/dist --profile "$profile" "$@"
    )
    rm -rf "$dir/target/$profile" "$dir/target/debug" "$dir/target/dlopen"
}

build first 022 UTC "$@"
build a/second/tree 077 Asia/Tokyo "$@"
sums() { (cd "$work/$1/target/distribution" && sha256sum -- *); }
sums first
diff <(sums first) <(sums a/second/tree) || die "two builds of the packages differ"
echo "reproducible: the packages of both builds are identical"
