#!/usr/bin/env bash
# Each public type of these crates has an example in its documentation, which `cargo doc` has written: doc-examples.sh CRATE…
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. ci/lib/common.sh

pages=()
for crate in "$@"; do
    doc=${CARGO_TARGET_DIR:-target}/doc/$crate
    [[ -f $doc/all.html ]] || die "$doc is not there: run cargo doc"
    # The list, not the directory, which still has the pages of what was removed.
    mapfile -t -O "${#pages[@]}" pages < <(
        grep -oE 'href="[^"#]*(struct|enum|union|trait|type)\.[A-Za-z0-9_]+\.html"' "$doc/all.html" | sed "s#href=\"\(.*\)\"#$doc/\1#")
done
((${#pages[@]} > 0)) || die "the documentation of $* lists no types"

# What a type's own documentation is, as opposed to that of its methods, is the first part of its page that can be folded.
awk '
    function judge(    start, own) {
        types++
        start = index(page, "class=\"toggle top-doc\"")
        own = start ? substr(page, start) : ""
        own = substr(own, 1, index(own, "</details>"))
        if (!index(own, "rust-example-rendered")) { without++; print "no example: " name }
    }
    FNR == 1 { if (NR > 1) judge(); page = ""; name = FILENAME }
    { page = page $0 "\n" }
    END { judge(); printf "%d public types, %d without an example\n", types, without; exit without > 0 }
' "${pages[@]}"
