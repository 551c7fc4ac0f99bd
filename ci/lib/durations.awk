# Lists the builds and programs of a stage of ci/test that took at least 3 seconds, from its output:
# awk -v stage=NAME -f durations.awk OUTPUT. With `-v total=1` it prints only the seconds that the
# builds took together.

function report(seconds, name) { if (seconds >= 3 && !total) printf "%6d  %-8s %s\n", seconds, stage, name }

# cargo: "Finished `test` profile [unoptimized] target(s) in 1m 18s"
/^ *Finished .* target\(s\) in / {
    seconds = 0
    for (i = NF; $i != "in"; i--) seconds += $i * ($i ~ /m$/ ? 60 : 1)
    building += seconds
    report(seconds, "building")
}
# A test program, "Running tests/cq.rs (target/debug/deps/cq-0123456789abcdef)", and its last line,
# "finished in 4.14s"
/^ *Running / { program = $NF; sub(/.*\//, "", program); sub(/-[0-9a-f]+\)$/, "", program) }
/^ *Doc-tests / { program = "examples of " $2 }
/^test result: .* finished in / { report($NF + 0, program) }
# The list of device tests that ci/guest/device-tests prints
/^seconds of the longest programs/ { listed = 1; next }
listed && /^ *[0-9]+  [a-z_]+( [a-z_:]+)?$/ { report($1, $2 (NF > 2 ? " " $3 : "")); next }
{ listed = 0 }
END { if (total) printf "%d\n", building }
