# shellcheck shell=bash disable=SC2034 # other files use some of the variables
# Progress lines, errors and the cache, for all scripts of the lab.

# Exit statuses of the lab itself. All others are those of the command.
readonly STATUS_TIMEOUT=124
readonly STATUS_LAB_FAILED=125

LAB_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rdma-lab
LAB_STARTED_MS=$(date +%s%3N)
LAB_QUIET=${RDMA_LAB_QUIET:-0}

elapsed() {
    local ms=$(($(date +%s%3N) - LAB_STARTED_MS))
    printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# Prints a line of progress on stderr, with the seconds since the start.
info() {
    [[ $LAB_QUIET == 1 ]] || printf 'lab %5ss  %s\n' "$(elapsed)" "$*" >&2
}

die() {
    printf 'lab: %s\n' "$@" >&2
    exit "$STATUS_LAB_FAILED"
}

# Searches the administrator's directories as well, which are not in every user's PATH.
program_path() { PATH=$PATH:/usr/sbin:/sbin command -v "$1"; }

have() { program_path "$1" >/dev/null 2>&1; }

# Runs a long command with its output in a log, and reports every ten seconds that it is still
# running. If it fails, prints the end of the log.
run_logged() {
    local task=$1 log pid ticks=0
    shift
    mkdir -p "$LAB_CACHE/logs"
    log=$LAB_CACHE/logs/$(tr -cs 'a-zA-Z0-9\n' - <<<"$task").log
    info "$task"
    "$@" >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
        ticks=$((ticks + 1))
        ((ticks % 100 != 0)) || info "… still running: $task"
    done
    if ! wait "$pid"; then
        printf 'lab: failed: %s\nlab: the last lines of %s:\n' "$task" "$log" >&2
        tail -n 20 "$log" | sed 's/^/    /' >&2
        return 1
    fi
}

# Holds the lock of the cache while a command changes it, so that two labs started at the same time
# fill it once.
with_cache_lock() {
    mkdir -p "$LAB_CACHE"
    exec {LAB_LOCK_FD}>"$LAB_CACHE/.lock"
    if ! flock -n "$LAB_LOCK_FD"; then
        info "waiting for another lab that is filling the cache"
        flock "$LAB_LOCK_FD"
    fi
    "$@" {LAB_LOCK_FD}>&-
    exec {LAB_LOCK_FD}>&-
}

sudo_if_needed() {
    if ((EUID == 0)); then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "root is required and sudo is not installed; run as root: $*"
    fi
}
