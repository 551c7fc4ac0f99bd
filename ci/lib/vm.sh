# shellcheck shell=bash
# Virtual machines on this machine's own root file system, by virtme-ng.
#
# Each has a directory in $VM_DIR that both sides see:
#   init, devices   the guest's programs       config, modules, command   what to run
#   out, err        pipes for its output       console, virtme        logs
#   started, status, failure                   what the guest reports

# Instead of virtme's own arguments, which end in its own init: that one waits
# for udev and tidies the file system, and would not find our output's ports.
# A processor that stands still for a minute ends the machine, as a panic does: it would end at the time limit only.
readonly KERNEL_STALLS='rcupdate.rcu_cpu_stall_timeout=60 sysctl.kernel.panic_on_rcu_stall=1'
readonly KERNEL_ARGUMENTS="console=ttyS0 panic=-1 $KERNEL_STALLS nokaslr mitigations=off net.ifnames=0"
# … where processors are emulated: one that its host did not run for a while makes the kernel doubt its time stamp counter, and read the
# HPET from then on, which takes microseconds each time
readonly KERNEL_EMULATED='tsc=reliable'
# … and, where the console goes to a log, what to say in it
readonly KERNEL_LOGGING='earlyprintk=serial,ttyS0,115200 loglevel=4'
readonly DEFAULT_CPUS=2
readonly BOOT_LIMIT=300 # seconds until a guest must have its devices
TCG_CPU=${RDMA_LAB_TCG_CPU:-max,la57=off}
VM_DIR=
declare -a VM_PIDS=() READER_PIDS=()

make_vm_dir() {
    local place=${TMPDIR:-/tmp} dir
    # the guest has a /run and a /dev of its own, and the kernel's arguments no quotes
    [[ $place != *[[:space:]]* && $place != /run/* && $place != /dev/* ]] || place=/tmp
    dir=$(mktemp -d "$place/rdma-lab.XXXXXX") || die "no directory could be made in $place"
    printf '#!/bin/sh\nexec setpriv --pdeathsig KILL qemu-system-x86_64 "$@"\n' >"$dir/qemu"
    chmod +x "$dir/qemu"
    echo "$dir"
}

# Sets up the directory of host N: vm_prepare N HOSTS MODE COMMAND…
vm_prepare() {
    local host=$1 hosts=$2 mode=$3 dir
    shift 3
    VM_DIR=${VM_DIR:-$(make_vm_dir)}
    dir=$VM_DIR/host$host
    mkdir -p "$dir" "$VM_DIR/shared"
    cp "$LAB_ROOM/guest/devices" "$LAB_ROOM/guest/lab-link" "$dir/"
    sed "1s|/bin/busybox|$(command -v busybox)|" "$LAB_ROOM/guest/init" >"$dir/init"
    list_modules >"$dir/modules"
    write_config "$host" "$hosts" "$mode" >"$dir/config"
    write_command "$host" "$hosts" "$@" >"$dir/command"
    chmod +x "$dir/init" "$dir/command"
    mkfifo "$dir/out" "$dir/err"
}

# The module files to insert, dependencies first.
list_modules() {
    local -a names
    read -ra names <<<"$LAB_MODULE_NAMES virtio_net"
    PATH=$PATH:/usr/sbin:/sbin modprobe -d "${KERNEL_MODULES%/lib/modules/*}/" -S "$KERNEL_VERSION" \
        -a --show-depends "${names[@]}" 2>/dev/null | awk '/^insmod/ && !seen[$2]++ { print $2 }' || true
}

has_module() { [[ -n $(find "$KERNEL_MODULES/" -name "$1.ko*" -print -quit) ]]; }

write_config() {
    local stty='' name=lab
    [[ $3 != shell ]] || stty=$(stty size 2>/dev/null | sed 's/\(.*\) \(.*\)/rows \1 cols \2/')
    (($2 == 1)) || name=host$1
    printf "%s='%s'\n" LAB_HOST "$1" LAB_HOSTS "$2" LAB_MODE "$3" LAB_STTY "$stty" \
        LAB_IP "$(program_path ip)" LAB_HOSTNAME "$name" LAB_MODULES "$KERNEL_MODULES" LAB_CACHED_USR "$(usr_can_be_cached)"
}

# Not when the caller works there, for what the host changes there goes unseen.
usr_can_be_cached() { if [[ $PWD/ == /usr/* ]]; then echo 0; else echo 1; fi; }

# A script that runs the command as it would run here: same environment,
# directory and arguments; and knowing that it is in the lab.
write_command() {
    local host=$1 hosts=$2 line drivers=rxe
    shift 2
    ! has_module siw || drivers+=' siw'
    echo '#!/bin/bash'
    env -0 | while IFS= read -r -d '' line; do
        case $line in
        _=* | SHLVL=* | PWD=* | OLDPWD=* | XDG_RUNTIME_DIR=* | BASH_FUNC_* | RDMA_LAB_*) ;;
        *) printf 'export %q=%q\n' "${line%%=*}" "${line#*=}" ;;
        esac
    done
    LAB_HOST=$host LAB_HOSTS=$hosts describe_devices "$drivers" | while IFS= read -r line; do
        printf 'export %q\n' "$line"
    done
    printf 'export RDMA_LAB_BACKEND=%q RDMA_LAB_SHARED=%q\n' "$LAB_BACKEND" "$VM_DIR/shared"
    # shellcheck disable=SC2016
    echo 'PATH=$PATH:/usr/sbin:/sbin:/run/lab/bin'
    printf 'cd %q || exit 125\n' "$PWD"
    printf 'exec %s\n' "$(shell_line "$@")"
}

# A word alone that is no program is a line for the shell; else the words are
# a command and its arguments, passed on as they are.
shell_line() {
    if (($# == 1)) && ! have "$1"; then
        printf 'bash -c %q' "$1"
    else
        printf '%q ' "$@"
    fi
}

# The QEMU options that differ by how the machine is driven.
vm_cpu_options() {
    if [[ $LAB_BACKEND == vm-kvm ]]; then
        echo "-machine accel=kvm"
    else
        echo "-accel tcg,thread=multi -cpu $TCG_CPU"
    fi
}

# Two machines: two cables, one for rxe and one for siw, of datagrams between
# Unix sockets (they need no order of start, and nothing else hears them).
vm_network_options() {
    local host=$1 hosts=$2 cable
    ((hosts == 2)) || return 0
    for cable in 0 1; do
        printf '%s ' -netdev "dgram,id=lab$cable,local.type=unix,local.path=$VM_DIR/cable$cable.$host,remote.type=unix,remote.path=$VM_DIR/cable$cable.$((3 - host))" \
            -device "virtio-net-pci,netdev=lab$cable,mac=52:54:00:1a:b$cable:0$host,host_mtu=9000"
    done
}

# Sets VM_COMMAND to virtme's command line for host N of HOSTS in MODE.
vm_command() {
    local host=$1 hosts=$2 mode=$3 dir=$VM_DIR/host$1 kvm=()
    local cpu network logging=$KERNEL_LOGGING emulated=''
    [[ $mode != shell ]] || logging='quiet loglevel=1'
    [[ $LAB_BACKEND == vm-kvm ]] || kvm=(--disable-kvm) emulated=$KERNEL_EMULATED
    read -ra cpu < <(vm_cpu_options)
    read -ra network < <(vm_network_options "$host" "$hosts") || true
    # shellcheck disable=SC2054 # QEMU wants the commas
    VM_COMMAND=(
        "$(virtme_dir)/bin/virtme-run" --mods auto --kimg "$KERNEL_IMAGE" --rw --force-9p
        --qemu-bin "$VM_DIR/qemu" --disable-monitor --disable-microvm "${kvm[@]}" --memory "${LAB_MEM}M" --cpus "${LAB_CPUS:-$DEFAULT_CPUS}"
        --qemu-opts -no-reboot "${cpu[@]}" "${network[@]}"
        -fsdev local,id=usr,path=/usr,security_model=none,multidevs=remap
        -device virtio-9p-pci,fsdev=usr,mount_tag=labusr
        -append "init=$dir/init lab_dir=$dir $KERNEL_ARGUMENTS $emulated $logging $LAB_KERNEL_ARGUMENTS"
    )
    # shellcheck disable=SC2054
    [[ $mode == shell ]] || VM_COMMAND+=(
        -device virtio-serial-pci
        -chardev "file,id=labout,path=$dir/out" -device virtserialport,name=lab.stdout,chardev=labout
        -chardev "file,id=laberr,path=$dir/err" -device virtserialport,name=lab.stderr,chardev=laberr
    )
}

# Starts host N's machine in the background, its output flowing to ours.
vm_start() {
    local host=$1 hosts=$2 dir=$VM_DIR/host$1
    vm_command "$host" "$hosts" run
    if ((hosts == 2)); then
        sed -u "s/^/host$host| /" <"$dir/out" & READER_PIDS+=($!)
        sed -u "s/^/host$host| /" <"$dir/err" >&2 & READER_PIDS+=($!)
    else
        cat <"$dir/out" & READER_PIDS+=($!)
        cat <"$dir/err" >&2 & READER_PIDS+=($!)
    fi
    # the machine dies with the lab, however that ends
    setsid setpriv --pdeathsig KILL "${VM_COMMAND[@]}" \
        </dev/null > >(cat >"$dir/console") 2> >(cat >"$dir/virtme") &
    VM_PIDS[host]=$!
}

vm_stop_all() {
    local pid fifo
    for pid in "${VM_PIDS[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true; done
    for pid in "${VM_PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    VM_PIDS=()
    # readers whose machine never opened its end would wait for ever
    for fifo in "$VM_DIR"/host*/{out,err}; do
        [[ -p $fifo ]] && { exec {LAB_FIFO_FD}<>"$fifo"; exec {LAB_FIFO_FD}>&-; }
    done
    for pid in "${READER_PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    READER_PIDS=()
}

vm_clean_up() {
    [[ -n $VM_DIR ]] || return 0
    vm_stop_all
    rm -rf "$VM_DIR"
    VM_DIR=
}

all_vms_alive() {
    local pid
    for pid in "${VM_PIDS[@]}"; do kill -0 "$pid" 2>/dev/null || return 1; done
}

# Waits until host N's machine reports a file, a machine is gone, or a time
# (ms) is over: vm_await N FILE UNTIL. Status 1: gone; 2: over.
vm_await() {
    local host=$1 file=$VM_DIR/host$1/$2 until=$3
    while [[ ! -e $file ]]; do
        if ! all_vms_alive; then [[ -e $file ]] && return; return 1; fi
        (($(date +%s%3N) < until)) || return 2
        sleep 0.1
    done
}

vm_failed() {
    local dir=$VM_DIR/host$1 what=$2
    vm_stop_all
    {
        echo "lab: $what"
        [[ ! -e $dir/failure ]] || sed 's/^/lab: the guest says: /' "$dir/failure"
        tail -n 5 "$dir/virtme" | sed 's/^/lab: virtme: /'
        echo "lab: the console's last lines:"
        tail -n 60 "$dir/console" | tr -d '\r' | sed 's/^/    /'
    } >&2
    return "$STATUS_LAB_FAILED"
}

# Runs the prepared machines; the status is that of the last host's command.
# vm_run HOSTS TIMEOUT (0: none).
vm_run() {
    local hosts=$1 timeout=$2 why=0 limit
    limit=$(date +%s%3N)
    limit=$((timeout > 0 ? limit + timeout * 1000 : limit + 10 ** 12))
    vm_boot "$hosts" "$limit" || why=$?
    if ((why == 1)); then
        # Emulated processors now and then trip over code that another one has just patched (ci/README.md). Nothing has begun yet.
        say "the kernel died while it started: once more"
        rm -f "$VM_DIR"/host*/started
        why=0
        vm_boot "$hosts" "$limit" || why=$?
        ((why != 1)) || why=$STATUS_LAB_FAILED
    fi
    ((why == 0)) || return "$why"
    say "up; running the command"
    vm_await_command "$hosts" "$limit" "$timeout"
}

# Starts the machines and waits until all are up: vm_boot HOSTS LIMIT. Status 1: an emulated one ended without a word, which may not happen again.
vm_boot() {
    local hosts=$1 limit=$2 host why boot_limit
    boot_limit=$(($(date +%s%3N) + BOOT_LIMIT * 1000))
    for ((host = 1; host <= hosts; host++)); do vm_start "$host" "$hosts"; done
    for ((host = 1; host <= hosts; host++)); do
        why=0
        vm_await "$host" started $((limit < boot_limit ? limit : boot_limit)) || why=$?
        if ((why == 1)); then
            vm_failed "$host" "the virtual machine ended before its RDMA devices were up" || why=$?
            if [[ $LAB_BACKEND != vm-kvm && ! -e $VM_DIR/host$host/failure ]] && grep -q 'Kernel panic' "$VM_DIR/host$host/console"; then why=1; fi
            return "$why"
        elif ((why == 2)); then
            vm_failed "$host" "the virtual machine did not come up in time" || why=$?
            if (($(date +%s%3N) >= limit)); then why=$STATUS_TIMEOUT; fi
            return "$why"
        fi
    done
}

vm_await_command() {
    local hosts=$1 limit=$2 why=0 status
    vm_await "$hosts" status "$limit" || why=$?
    case $why in
    1) vm_failed "$hosts" "the virtual machine ended before its command did"; return ;;
    2) vm_stop_all; say "time limit of $3 s reached: ended"; return "$STATUS_TIMEOUT" ;;
    esac
    status=$(<"$VM_DIR/host$hosts/status")
    if ((hosts == 2)) && [[ -e $VM_DIR/host1/status && $(<"$VM_DIR/host1/status") != 0 ]]; then
        say "note: host1's command had ended with status $(<"$VM_DIR/host1/status")"
    fi
    vm_stop_all
    say "the command ended with status $status"
    return "$status"
}

# An interactive shell on the machine's console.
vm_shell() {
    local status=0
    vm_command 1 1 shell
    "${VM_COMMAND[@]}" 2> >(cat >"$VM_DIR/host1/virtme") || true
    [[ ! -t 0 ]] || stty sane
    [[ -e $VM_DIR/host1/status ]] || vm_failed 1 "the virtual machine ended without a word" || return
    status=$(<"$VM_DIR/host1/status")
    return "$status"
}
