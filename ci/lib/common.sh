# shellcheck shell=bash disable=SC2034 # other files use some of the variables
# Progress lines, errors and the cache, for all scripts of the lab.

# Exit statuses of the lab itself. All others are those of the command.
readonly STATUS_TIMEOUT=124
readonly STATUS_LAB_FAILED=125

# A system service of systemd has no HOME.
export HOME=${HOME:-$(getent passwd "$EUID" | cut -d: -f6)}
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
    log=$(tr -cs 'a-zA-Z0-9\n' - <<<"$task")
    log=$LAB_CACHE/logs/${log:0:60}.log # a file name has at most 255 bytes
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

# Fails with what an administrator can do if this user cannot become root. Asks for the password of
# sudo now, because later output goes to a log: require_root TASK COMMAND
require_root() {
    ((EUID != 0)) || return 0
    if have sudo && { sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }; }; then return; fi
    die "$1 needs root, and sudo is not available or not permitted" "help: an administrator can run: $2"
}

sudo_if_needed() { if ((EUID == 0)); then "$@"; else sudo "$@"; fi; }

# Fails unless directories are writable and have space: require_space MIB DIRECTORY VARIABLE
require_space() {
    local available
    [[ $2 != *[[:space:]]* || $3 == TMPDIR ]] || die "the path '$2' has a space, which the build of a kernel does not allow" \
        "help: set $3 to another directory"
    mkdir -p "$2" 2>/dev/null || true
    [[ -w $2 ]] || die "cannot write to the directory $2" "help: set $3 to a directory that you can write to"
    available=$(($(df --output=avail -k "$2" | tail -n 1) / 1024))
    ((available >= $1)) || die "the directory $2 has $available MiB of free space; expected at least $1 MiB" \
        "help: free some, or set $3 to another directory"
}
