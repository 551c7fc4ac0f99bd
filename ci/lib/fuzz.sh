# shellcheck shell=bash
# Runs the targets of testing/fuzz with generated inputs, and prints a table.

readonly CARGO_FUZZ_VERSION=0.13.2
# Targets that check a host, draw a page or connect for each input. They get a tenth of the inputs
# of others.
readonly SLOW_TARGETS=' capture compare_records configuration host_output mesh_record peer_facts probe rperf_record session_sequence transfer_sequence '
# Seconds after which an input counts as a hang.
readonly FUZZ_TIMEOUT=60

# fuzz [--inputs N] [--target NAME] [--seed S]
fuzz() {
    local inputs=10000000 seed=$SRANDOM targets status=0
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"/\1/p' testing/fuzz/Cargo.toml | tail -n +2)
    while (($# > 0)); do
        (($# > 1)) || die "$1 needs a value (ci/stress --help)"
        case $1 in
        --inputs) is_number "$2" || die "--inputs $2; expected a number" && inputs=$2 ;;
        --seed) is_number "$2" || die "--seed $2; expected a number" && seed=$2 ;;
        --target)
            [[ " ${targets[*]} " == *" $2 "* ]] || die "no target $2; available: ${targets[*]}"
            targets=("$2")
            ;;
        *) usage >&2 && exit 2 ;;
        esac
        shift 2
    done
    build_fuzz_targets
    info "$inputs inputs, seed $seed; 10 million take about 15 minutes on two free processors"
    run_fuzz_targets || status=$?
    return "$status"
}

build_fuzz_targets() {
    ensure_packages build fuzz # libFuzzer is in C++
    ensure_rust
    ensure_cargo_tool cargo-fuzz "$CARGO_FUZZ_VERSION"
    # The code has no `unsafe`, so a sanitizer would only make it slower, and would need nightly.
    run_logged "building the fuzzing targets" \
        "$(cargo_tool cargo-fuzz "$CARGO_FUZZ_VERSION")" build --fuzz-dir testing/fuzz --sanitizer none --codegen-units 16 ||
        die "building the fuzzing targets failed"
}

# Runs $targets, as many at a time as there are processors, and prints a line for each.
run_fuzz_targets() {
    local target work shares=0 failed=0
    work=$(mktemp -d)
    for target in "${targets[@]}"; do shares=$((shares + $(shares_of "$target"))); done
    printf '%-16s %10s %8s  %s\n' target inputs seconds result
    for target in "${targets[@]}"; do
        while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || failed=$((failed + 1)); done
        fuzz_target "$target" $(((inputs * $(shares_of "$target") + shares - 1) / shares)) &
    done
    while [[ -n $(jobs -rp) ]]; do wait -n || failed=$((failed + 1)); done
    awk '{ inputs += $1; seconds += $2 } END { printf "%-16s %10d %8d\n", "all", inputs, seconds }' "$work"/*.count
    failed=$(find "$work" -name '*.failed' | wc -l)
    rm -rf "$work"
    ((failed == 0)) || info "$failed of ${#targets[@]} targets failed"
    ((failed == 0))
}

shares_of() { if [[ $SLOW_TARGETS == *" $1 "* ]]; then echo 1; else echo 10; fi; }

# Runs one target: fuzz_target NAME INPUTS. New inputs go to target/fuzz/NAME, so that a later run
# begins with them. An input that reveals a fault is kept in testing/fuzz/artifacts/NAME.
fuzz_target() {
    local name=$1 log=$work/$1.log found=target/fuzz/$1 artifacts=testing/fuzz/artifacts/$1/ begin=$SECONDS count
    local program=testing/fuzz/target/x86_64-unknown-linux-gnu/release/$name result=ok
    mkdir -p "$found" "$artifacts" "$work/$name"
    # The targets print what the tools print: it is not needed.
    TMPDIR=$work/$name "$program" "$found" "testing/fuzz/corpus/$name" -runs="$2" -seed="$seed" \
        -timeout="$FUZZ_TIMEOUT" -rss_limit_mb=4096 -artifact_prefix="$artifacts" \
        -print_final_stats=1 >"$log" 2>&1 || result="FAILED"
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "${count:-0} $((SECONDS - begin))" >"$work/$name.count"
    if [[ $result == FAILED ]]; then
        touch "$work/$name.failed"
        result="FAILED with $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)"
        cp "$log" "target/fuzz/$name.log"
        result+=": $(grep -m 1 -A 1 'panicked at' "$log" | tr '\n' ' ')(target/fuzz/$name.log)"
    fi
    printf '%-16s %10d %8d  %s\n' "$name" "${count:-0}" $((SECONDS - begin)) "$result"
}
