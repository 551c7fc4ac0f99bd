#!/usr/bin/env bash
# Runs the systemd units under a systemd of their own, in namespaces, on an overlay of this root
# file system that is dropped afterwards. On a machine without a running systemd, nothing else shows
# that the units start with their restrictions, restart and stop.
#
# usage: ci/tests/systemd-units.sh [DIR]   (as root; the directory with rperf and ribinfo, default:
#                                           the installed ones)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly UNITS=(rperf rperf-monitor ribinfo-export)
# Seconds for everything.
readonly LIMIT=90

# Runs outside: prints what `check` found.
main() {
    local programs=${1:-/usr/bin} cgroup
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir "$work"/{upper,root,shared}
    touch "$work/shared/console"
    # systemd sees the cgroup in which its namespace was made as the root.
    cgroup=$(findmnt -nt cgroup2 -o TARGET | sed -n 1p)/systemd-units-$$
    mkdir -p "$cgroup"
    (
        echo "$BASHPID" >"$cgroup/cgroup.procs"
        timeout -s KILL "$LIMIT" unshare --pid --fork --kill-child --mount --cgroup --uts --ipc --net \
            --propagation private --mount-proc bash "$0" inside "$work" "$(realpath "$programs")"
    ) >"$work/log" 2>&1 || true
    rmdir "$cgroup" 2>/dev/null || true
    cat "$work/shared/result" 2>/dev/null || { cat "$work/log" "$work/shared/console" && exit 1; }
    grep -qx 'systemd-units: passed' "$work/shared/result"
}

# Prepares the root file system and becomes systemd: inside WORK PROGRAMS
inside() {
    local root=$1/root device
    ip link set lo up
    mount -t tmpfs tmpfs "$1/upper"
    mkdir "$1"/upper/{files,work}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper/files,workdir=$1/upper/work" "$root"
    cp "$2"/{rperf,ribinfo} "$root/usr/bin/"
    cp perftools/systemd/*.service "$root/usr/lib/systemd/system/"
    echo localhost >"$root/etc/rperf-monitor.hosts"
    # Nothing that this machine would start.
    rm -rf "$root"/etc/systemd/system/*.wants "$root/etc/systemd/system/default.target"
    printf '[Unit]\nWants=check.service %s\n' "${UNITS[*]/%/.service}" >"$root/etc/systemd/system/check.target"
    cat >"$root/etc/systemd/system/check.service" <<UNIT
[Unit]
After=${UNITS[*]/%/.service}
[Service]
Type=oneshot
StandardOutput=append:/shared/result
StandardError=append:/shared/result
ExecStart=/bin/bash /shared/script check
UNIT
    cp "$0" "$1/shared/script"
    mkdir -p "$root"/{shared,old}
    mount --bind "$1/shared" "$root/shared"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null zero full random urandom; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    touch "$root/dev/console"
    mount --bind "$1/shared/console" "$root/dev/console"
    # Credentials of units need a shared mount.
    cd "$root"
    pivot_root . old
    mount --make-rshared /
    umount -l /old
    exec env -i container=check PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --system --unit=check.target --log-target=console --log-level=warning </dev/null
}

property() { systemctl show --value -p "$2" "$1"; }

# Prints a line if the values differ: same WHAT EXPECTED ACTUAL
same() {
    [[ $2 == "$3" ]] || { echo "$1: expected $2, got $3" && status=1; }
}

# Waits until a command succeeds.
eventually() {
    for _ in {1..50}; do
        ! "$@" || return 0
        sleep 0.2
    done
    echo "failed: $*" && status=1
}

has_line() { exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET /metrics HTTP/1.1\r\n\r\n' >&3 && grep -q "$2" <&3; }
in_subshell() { ("$@") 2>/dev/null; }
is_restarted() { [[ $(property "$1" NRestarts) == 1 && $(property "$1" ActiveState) == active ]]; }

# Runs under systemd.
check() {
    local unit status=0
    eventually in_subshell rperf localhost -t 300ms tcp_lat >/dev/null
    eventually in_subshell has_line 9743 'rperf_path_up.* 1.0'
    eventually in_subshell has_line 9742 ribinfo_check_findings
    same "user of rperf" yes "$(property rperf DynamicUser)"
    for unit in "${UNITS[@]}"; do
        same "state of $unit" active "$(property "$unit" ActiveState)"
        same "restarts of $unit" 0 "$(property "$unit" NRestarts)"
        same "seccomp of $unit" 2 "$(awk '/^Seccomp:/ { print $2 }' "/proc/$(property "$unit" MainPID)/status")"
    done
    systemctl kill -s KILL rperf-monitor
    eventually is_restarted rperf-monitor
    for unit in "${UNITS[@]}"; do
        systemctl stop "$unit"
        same "result of $unit" success "$(property "$unit" Result)"
    done
    if ((status == 0)); then
        echo 'systemd-units: passed'
    else
        journalctl --no-pager -q -n 30
    fi
    systemctl poweroff --force --force >/dev/null
}

case ${1:-} in
inside) inside "$2" "$3" ;;
check) check ;;
*) main "$@" ;;
esac
