# What a stage of ci/test said, made a list of its builds and programs with the seconds that each took, from 3 on:
# awk -v stage=NAME -f longest.awk OUTPUT

function took(seconds, what) { if (seconds >= 3) printf "%6d  %-8s %s\n", seconds, stage, what }

# cargo: "Finished `test` profile [unoptimized] target(s) in 1m 18s"
/^ *Finished .* target\(s\) in / {
    seconds = 0
    for (i = NF; $i != "in"; i--) seconds += $i * ($i ~ /m$/ ? 60 : 1)
    took(seconds, "building")
}
# A program of tests, "Running tests/cq.rs (target/debug/deps/cq-0123456789abcdef)", and its last line: "finished in 4.14s"
/^ *Running / { program = $NF; sub(/.*\//, "", program); sub(/-[0-9a-f]+\)$/, "", program) }
/^ *Doc-tests / { program = "examples of " $2 }
/^test result: .* finished in / { took($NF + 0, program) }
# The list of the device tests
/^seconds that programs took/ { listed = 1; next }
listed && /^ *[0-9]+  [a-z_]+$/ { took($1, $2); next }
{ listed = 0 }
