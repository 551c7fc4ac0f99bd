#!/bin/bash
# shellcheck disable=SC2016 # expanded by the shell inside the lab
# Tests of ci/lab. Most of them share one start of a machine, because a start takes seconds.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/lab-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

expect() { # NAME COMMAND…: reports success if the command succeeds
    local name=$1
    shift
    if "$@"; then
        echo "ok    $name"
    else
        echo "FAIL  $name"
        failures=$((failures + 1))
    fi
}

contains() { grep -qE -- "$2" "$1"; }
fails_with() { # STATUS COMMAND…
    local wanted=$1 status=0
    shift
    "$@" >"$work/fails" 2>&1 || status=$?
    [[ $status == "$wanted" ]] || { echo "      status $status, expected $wanted:"; sed 's/^/      /' "$work/fails"; return 1; }
}

test_usage() {
    expect "--help prints the usage" contains <(./lab --help) '^usage:'
    expect "no command is an error" fails_with 125 ./lab run --
    expect "an unknown option is an error" fails_with 125 ./lab run --no-such
    expect "two hosts need two commands" fails_with 125 ./lab run --hosts 2 -- true
    expect "17 hosts are too many" fails_with 125 ./lab run --hosts 17 -- true -- true
    expect "--vfio-user needs a program" fails_with 125 ./lab run --vfio-user /no/such -- true
    expect "--device is a known one" fails_with 125 ./lab run --device nic -- true
    expect "--device needs a virtual machine" fails_with 125 ./lab run --uml --device mlx5 -- true
    expect "--vfio-user needs a virtual machine" fails_with 125 ./lab run --uml --vfio-user /bin/true -- true
    expect "a function that ends is an error" fails_with 125 ./lab run --hosts 2 --vfio-user /bin/true -- true -- true
}

# Tests with one start: status, streams, arguments, directory, environment, files, devices.
test_one_host() {
    local status=0
    cat >"$work/inside" <<'EOF'
# Waits for a server, which starts slowly under emulation. A listener shows as LISTEN (rdma_cm) or
# 0A (TCP).
listens() { local n; for n in {1..200}; do { rdma resource show cm_id; cat /proc/net/tcp /proc/net/tcp6; } | grep "$1" >/dev/null && return; sleep 0.1; done; return 1; }
printf '<%s>' "$@"; echo
pwd; echo "variable: $LAB_TEST_VARIABLE"; echo "to stderr" >&2; echo "written inside" >"$LAB_TEST_FILE"
echo "devices: $RDMA_LAB_DEVICES at $RDMA_LAB_RXE_ADDR $RDMA_LAB_RXE_ADDR6"
case $RDMA_LAB_BACKEND in vm*) grep -o labs.argument /proc/cmdline ;; *) echo labs.argument ;; esac
echo "memlock: $(ulimit -l) nofile: $(ulimit -n)"
case $RDMA_LAB_BACKEND in vm*) echo "clock: $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)" ;; *) echo "clock: its host's" ;; esac
rdma link; ip -brief address
ls -d /sys/kernel/config/rdma_cm
for device in $RDMA_LAB_DEVICES; do ibv_devinfo -d "$device" | grep -E 'hca_id|state|active_mtu' | tr -s ' \t\n' ' '; echo; done
lab-link rxe netem delay 1ms; lab-link show; lab-link mend
lab-link rxe down; rdma link | sed 's/^/after down: /'; lab-link rxe up; ip -brief address | sed 's/^/after up: /'
for device in $RDMA_LAB_DEVICES; do
    name=RDMA_LAB_${device%0}_ADDR; name=${name^^}
    rping -s -a "${!name}" -C 3 & listens LISTEN
    rping -c -a "${!name}" -C 3 && echo "rping over $device"; wait
done
# On a busy host, ib_send_bw sometimes cannot measure the frequency of the processor ("Correlation
# coefficient").
for n in {1..20}; do ib_send_bw -d rxe0 -n 100 >/dev/null & listens :4853.*:0000.0A; ib_send_bw -d rxe0 -n 100 "$RDMA_LAB_RXE_ADDR" >/dev/null && echo "ib_send_bw over rxe0" && break; kill $! 2>/dev/null; wait; done
# qperf's client sometimes connects before its server listens ("Event rejected").
qperf & listens :4D35.*:0000.0A; for n in {1..10}; do qperf "$RDMA_LAB_RXE_ADDR" -cm1 -t 1 rc_lat && echo "qperf over rxe0" && break; sleep "$n"; done
exit 42
EOF
    LAB_TEST_VARIABLE=$'two\nlines and "$quotes"' LAB_TEST_FILE=$work/from-inside \
        ./lab run --timeout 300 --kernel labs.argument -- bash "$work/inside" 'a b' "it's" '"$HOME"' '' $'tab\there' '*' \
        2>"$work/err" >"$work/out" || status=$?
    expect "status of the command" test "$status" = 42
    expect "arguments are unchanged" contains "$work/out" "^<a b><it's><\"\\\$HOME\"><><tab	here><\*>\$"
    expect "environment is unchanged" contains "$work/out" '^lines and "\$quotes"$'
    expect "same directory" contains "$work/out" "^$PWD\$"
    expect "stderr is a separate stream" contains "$work/err" '^to stderr$'
    expect "stderr is not in stdout" test "$(grep -c 'to stderr' "$work/out")" = 0
    expect "files written inside exist outside" contains "$work/from-inside" '^written inside$'
    expect "devices are named" contains "$work/out" '^devices: rxe0 siw0 at 10.99.0.1 fd99::1$'
    expect "the clock does not leave the virtual machine" contains "$work/out" "^clock: (tsc|kvm-clock|timer|its host's)$"
    expect "limits" contains "$work/out" '^memlock: unlimited nofile: 65536$'
    expect "kernel arguments" contains "$work/out" '^labs\.argument$'
    expect "rxe0 is ACTIVE" contains "$work/out" '^link rxe0/1 state ACTIVE'
    expect "siw0 is ACTIVE" contains "$work/out" '^link siw0/1 state ACTIVE'
    expect "ibv_devinfo shows rxe0, MTU 4096" contains "$work/out" 'hca_id: rxe0 .*ACTIVE.*active_mtu: 4096'
    expect "ibv_devinfo shows siw0" contains "$work/out" 'hca_id: siw0 .*ACTIVE'
    expect "rdma_cm's configfs" contains "$work/out" '^/sys/kernel/config/rdma_cm$'
    expect "netem" contains "$work/out" 'qdisc netem .* delay 1ms'
    expect "a link can be cut" contains "$work/out" '^after down: link rxe0/1 state DOWN'
    expect "a cut link keeps its IPv6 address" contains "$work/out" '^after up: rxenet.*fd99::1'
    expect "rping over rxe0" contains "$work/out" '^rping over rxe0$'
    expect "rping over siw0" contains "$work/out" '^rping over siw0$'
    expect "ib_send_bw over rxe0" contains "$work/out" '^ib_send_bw over rxe0$'
    expect "qperf over rxe0" contains "$work/out" '^qperf over rxe0$'
    ((failures == 0)) || { sed 's/^/    /' "$work/out" "$work/err"; }
}

test_two_hosts() {
    local status=0
    ./lab run --hosts 2 --timeout 900 -- \
        'echo "host: $(hostname)"
         for address in "$RDMA_LAB_RXE_ADDR" "$RDMA_LAB_SIW_ADDR"; do
             # A server ends with its first client, also with one that a busy machine stopped.
             while true; do rping -s -a "$address" -C 3; sleep 0.1; done &
         done; wait' -- \
        'again() { for n in {1..10}; do "$@" && return; sleep 1; done; return 1; }
         again timeout 60 rping -c -a "$RDMA_LAB_RXE_PEER" -C 3 && echo over rxe
         again timeout 60 rping -c -a "$RDMA_LAB_SIW_PEER" -C 3 && echo over siw; exit 9' 2>"$work/err2" >"$work/out2" || status=$?
    expect "two hosts: the client's status" test "$status" = 9
    expect "two hosts: the server's output" contains "$work/out2" '^host1\| host: host1$'
    expect "two hosts: rping over rxe" contains "$work/out2" '^host2\| over rxe$'
    expect "two hosts: rping over siw" contains "$work/out2" '^host2\| over siw$'
}

test_endings() {
    local start=$SECONDS pid status=0
    expect "a time limit gives 124" fails_with 124 ./lab run --timeout 9 -- sleep 1000
    expect "a time limit ends the command in time" test $((SECONDS - start)) -lt 500
    expect "a time limit during boot gives 124" fails_with 124 ./lab run --timeout 1 -- sleep 1000
    TMPDIR=$work ./lab run -q -- sleep 1000 2>/dev/null &
    pid=$!
    expect "a machine is running" within 200 machine_is_running
    kill -TERM "$pid"
    wait "$pid" || status=$?
    expect "a signal gives 143" test "$status" = 143
    expect "a signal leaves no machine running" fails_with 1 machine_is_running
    # As on a machine that lacks a program which the guest needs.
    cp -r . "$work/ci"
    sed -i 's/busybox mount -t proc/busybox missing -t proc/' "$work/ci/guest/init"
    expect "a guest that cannot start gives 125" fails_with 125 env "RDMA_LAB=${RDMA_LAB:-vm}" "$work/ci/lab" run --timeout 300 -- true
    expect "the failure of a guest is named" contains "$work/fails" 'guest: mounting /proc failed'
    expect "a guest that cannot start is not started again" test "$(grep -c 'starting it again' "$work/fails")" = 0
    echo 'no kernel' >"$work/vmlinuz"
    mkdir -p "$work/lib/modules/1.2.3"
    export RDMA_LAB=tcg RDMA_LAB_KERNEL=$work/vmlinuz RDMA_LAB_MODULES=$work/lib/modules/1.2.3
    expect "a bad kernel gives 125" fails_with 125 ./lab run --timeout 300 -- true
    expect "a bad kernel is reported" contains "$work/fails" 'QEMU: .*kernel'
    RDMA_LAB_KERNEL=$work/none
    expect "a missing kernel gives 125" fails_with 125 ./lab run -- true
    expect "a missing kernel is named" contains "$work/fails" "RDMA_LAB_KERNEL=$work/none"
}

within() { # SECONDS COMMAND…
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}

machine_is_running() { pgrep -f "(qemu-system|vmlinux-).*$work/rdma-lab" >/dev/null; }

test_usage
case ${1:-} in
usage) ;;
one-host)
    test_one_host
    test_endings
    ;;
*)
    test_one_host
    test_two_hosts
    test_endings
    ;;
esac
((failures == 0)) || { echo "$failures failed"; exit 1; }
echo "all passed"
