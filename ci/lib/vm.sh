# shellcheck shell=bash
# Runs virtual machines on this machine's root file system: under QEMU, or as a process of User-Mode
# Linux (lib/uml.sh).
#
# Each machine has a directory in $VM_DIR that both sides can access:
#   init, devices   programs of the guest      config, modules, command   input
#   out, err        pipes for its output       console, qemu              logs
#   started, status, off, failure              reports of the guest

# A processor that is stuck for a minute ends the machine, which would otherwise run until its time
# limit.
readonly KERNEL_STALLS='rcupdate.rcu_cpu_stall_timeout=60 sysctl.kernel.panic_on_rcu_stall=1'
readonly KERNEL_ARGUMENTS="console=ttyS0 panic=-1 $KERNEL_STALLS nokaslr mitigations=off net.ifnames=0"
# Additional arguments under emulation. When the host has not run an emulated processor for a while,
# the kernel would stop trusting its time stamp counter and read the HPET, which takes microseconds.
readonly KERNEL_EMULATED='tsc=reliable'
# Additional arguments of the debug kernel, which would stop at the first report of KASAN.
readonly KERNEL_DEBUG='kasan_multi_shot'
# Additional arguments if the console goes to a log.
readonly KERNEL_LOGGING='earlyprintk=serial,ttyS0,115200 loglevel=4'
readonly DEFAULT_CPUS=2
readonly BOOT_LIMIT=200 # seconds in which a guest must create its devices, in each of two attempts
TCG_CPU=${RDMA_LAB_TCG_CPU:-max,la57=off}
VM_DIR=
declare -a VM_PIDS=() READER_PIDS=()
SWITCH_PID=

make_vm_dir() {
    local parent=${TMPDIR:-/tmp} dir
    # The guest has its own /run and /dev, and kernel arguments cannot contain spaces.
    [[ $parent != *[[:space:]]* && $parent != /run/* && $parent != /dev/* ]] || parent=/tmp
    dir=$(mktemp -d "$parent/rdma-lab.XXXXXX") || die "creating a directory in $parent failed"
    echo "$dir"
}

# Sets up the directory of host N: vm_prepare N HOSTS MODE COMMAND…
vm_prepare() {
    local host=$1 hosts=$2 mode=$3 dir
    shift 3
    VM_DIR=${VM_DIR:-$(make_vm_dir)}
    dir=$VM_DIR/host$host
    mkdir -p "$dir" "$VM_DIR/shared"
    cp "$LAB_SCRIPTS"/guest/{devices,lab-link,lab-off} "$dir/"
    sed "s|/bin/busybox|$(command -v busybox)|" "$LAB_SCRIPTS/guest/init" >"$dir/init"
    list_modules >"$dir/modules"
    write_config "$host" "$hosts" "$mode" >"$dir/config"
    write_command "$host" "$hosts" "$@" >"$dir/command"
    chmod +x "$dir/init" "$dir/command"
    mkfifo "$dir/out" "$dir/err"
}

# Prints the module files to insert, dependencies first.
list_modules() {
    local -a names
    read -ra names <<<"$LAB_MODULE_NAMES virtio_net"
    ((LAB_MLX5 == 0)) || names+=(mlx5_ib ib_ipoib)
    files_of_modules "${names[@]}"
}

# Prints the files of modules and of those that they need: files_of_modules NAME…
files_of_modules() {
    PATH=$PATH:/usr/sbin:/sbin modprobe -d "${KERNEL_MODULES%/lib/modules/*}/" -S "$KERNEL_VERSION" \
        -a --show-depends "$@" 2>/dev/null | awk '/^insmod/ && !seen[$2]++ { print $2 }' || true
}

# Makes the initial RAM disk of QEMU's machines: busybox, and the modules for a root file system of
# 9p. User-Mode Linux mounts that of this machine without one.
make_initrd() { # FILE
    local dir=$VM_DIR/initrd.d module name
    mkdir -p "$dir"/{bin,modules,root}
    cp "$(command -v busybox)" "$dir/bin/busybox"
    install -m 755 "$LAB_SCRIPTS/guest/initrd" "$dir/init"
    for module in $(files_of_modules virtio_pci 9pnet_virtio 9p); do
        name=${module##*/}
        name=${name%.ko*}.ko
        case $module in
        *.xz) xz -dc "$module" ;;
        *.zst) zstd -dc "$module" ;;
        *.gz) gzip -dc "$module" ;;
        *) cat "$module" ;;
        esac >"$dir/modules/$name"
        echo "$name"
    done >"$VM_DIR/list"
    mv "$VM_DIR/list" "$dir/modules/list"
    (cd "$dir" && find . | busybox cpio -o -H newc 2>/dev/null) >"$1"
    rm -r "$dir"
}

has_module() { [[ -n $(find "$KERNEL_MODULES/" -name "$1.ko*" -print -quit) ]]; }

write_config() {
    local stty='' name=lab
    [[ $3 != shell ]] || stty=$(stty size 2>/dev/null | sed 's/\(.*\) \(.*\)/rows \1 cols \2/')
    (($2 == 1)) || name=host$1
    printf "%s='%s'\n" LAB_HOST "$1" LAB_HOSTS "$2" LAB_MODE "$3" LAB_STTY "$stty" \
        LAB_IP "$(program_path ip)" LAB_HOSTNAME "$name" LAB_MODULES "$KERNEL_MODULES" LAB_CACHED_USR "$(usr_can_be_cached)" \
        LAB_CONSOLE /dev/ttyS0 LAB_MLX5 "$LAB_MLX5"
    [[ $LAB_BACKEND != vm-uml ]] || uml_config "$VM_DIR/host$1"
}

# Prints 0 if the caller works in /usr, because a cache would hide changes that the host makes
# there. User-Mode Linux needs none.
usr_can_be_cached() { if [[ $LAB_BACKEND == vm-uml || $PWD/ == /usr/* ]]; then echo 0; else echo 1; fi; }

# Prints a script that runs the command with the same environment, directory and arguments as here,
# plus the variables of the lab.
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

# Prints a shell command line. A single word that is not a program is a line for the shell;
# otherwise the words are a command and its arguments, passed on unchanged.
shell_line() {
    if (($# == 1)) && ! have "$1"; then
        printf 'bash -c %q' "$1"
    else
        printf '%q ' "$@"
    fi
}

# Prints the QEMU options that depend on the accelerator.
vm_cpu_options() {
    if [[ $LAB_BACKEND == vm-kvm ]]; then
        echo "-accel kvm -cpu host"
    else
        echo "-accel tcg,thread=multi -cpu $TCG_CPU"
    fi
}

# Prints the QEMU options of the network: two links, one for rxe and one for siw, which send
# datagrams between Unix sockets. They need no order of start and are private. Two machines are
# connected directly, more of them by the switch, which reads the host from the last byte of an
# address.
vm_network_options() {
    local host=$1 hosts=$2 link remote mac
    ((hosts > 1)) || return 0
    for link in 0 1; do
        remote=$VM_DIR/link$link.$((3 - host))
        ((hosts == 2)) || remote=$VM_DIR/port$link.$host
        printf -v mac '52:54:00:1a:b%d:%02x' "$link" "$host"
        printf '%s ' -netdev "dgram,id=lab$link,local.type=unix,local.path=$VM_DIR/link$link.$host,remote.type=unix,remote.path=$remote" \
            -device "virtio-net-pci,netdev=lab$link,mac=$mac,host_mtu=9000,romfile="
    done
}

# Starts the switch between several machines: start_switch HOSTS
start_switch() {
    local i=0
    [[ -z $SWITCH_PID ]] || return 0
    setpriv --pdeathsig KILL python3 "$LAB_SCRIPTS/lib/switch.py" "$VM_DIR" "$1" &
    SWITCH_PID=$!
    until [[ -S $VM_DIR/port1.$1 ]]; do
        if ((i++ == 100)) || ! kill -0 "$SWITCH_PID"; then die "the switch between the machines did not start"; fi
        sleep 0.1
    done
}

# Prints the additional kernel arguments under emulation. The kernel would measure the frequency of
# the time stamp counter, which is that of this machine, against emulated timers. On a busy machine
# it was wrong by a factor of ten, and with it all time limits of the tests.
emulation_arguments() {
    local khz
    khz=$(python3 "$LAB_SCRIPTS/lib/tsc_khz.py") || die "measuring the time stamp counter failed"
    echo "$KERNEL_EMULATED tsc_early_khz=$khz"
}

# Sets VM_COMMAND to the command line that starts host N of HOSTS in MODE.
vm_command() {
    case $LAB_BACKEND in
    vm-uml) uml_command "$@" ;;
    *) qemu_command "$@" ;;
    esac
}

qemu_command() {
    local host=$1 hosts=$2 mode=$3 dir=$VM_DIR/host$1 function=()
    local cpu network logging=$KERNEL_LOGGING extra=''
    [[ $mode != shell ]] || logging='quiet loglevel=1'
    [[ $LAB_BACKEND == vm-kvm ]] || extra=$(emulation_arguments)
    [[ $(wanted_kernel) != debug ]] || extra+=" $KERNEL_DEBUG"
    read -ra cpu < <(vm_cpu_options)
    read -ra network < <(vm_network_options "$host" "$hosts") || true
    if ((${#LAB_FUNCTIONS[@]} > 0)); then
        start_functions "$host"
        mapfile -t function < <(function_options "$host")
    fi
    [[ -e $VM_DIR/initrd ]] || make_initrd "$VM_DIR/initrd"
    # shellcheck disable=SC2054 # commas are part of QEMU's options
    VM_COMMAND=(
        "$LAB_QEMU" -machine q35 -m "${LAB_MEM}M" -smp "${LAB_CPUS:-$DEFAULT_CPUS}" -no-reboot
        -nodefaults -display none -chardev stdio,id=console,signal=off -serial chardev:console
        "${cpu[@]}" "${network[@]}" "${function[@]}"
        -fsdev local,id=root,path=/,security_model=none,multidevs=remap
        -device virtio-9p-pci,fsdev=root,mount_tag=labroot
        -fsdev local,id=usr,path=/usr,security_model=none,multidevs=remap
        -device virtio-9p-pci,fsdev=usr,mount_tag=labusr
        -kernel "$KERNEL_IMAGE" -initrd "$VM_DIR/initrd"
        -append "lab_dir=$dir $KERNEL_ARGUMENTS $extra $logging $LAB_KERNEL_ARGUMENTS"
    )
    # shellcheck disable=SC2054
    [[ $mode == shell ]] || VM_COMMAND+=(
        -device virtio-serial-pci
        -chardev "file,id=labout,path=$dir/out" -device virtserialport,name=lab.stdout,chardev=labout
        -chardev "file,id=laberr,path=$dir/err" -device virtserialport,name=lab.stderr,chardev=laberr
    )
}

# Starts host N's machine in the background and copies its output to ours.
vm_start() {
    local host=$1 hosts=$2 dir=$VM_DIR/host$1
    vm_command "$host" "$hosts" run
    if ((hosts > 1)); then
        sed -u "s/^/host$host| /" <"$dir/out" & READER_PIDS+=($!)
        sed -u "s/^/host$host| /" <"$dir/err" >&2 & READER_PIDS+=($!)
    else
        cat <"$dir/out" & READER_PIDS+=($!)
        cat <"$dir/err" >&2 & READER_PIDS+=($!)
    fi
    # The machine is killed when the lab ends for any reason. User-Mode Linux has its output as
    # descriptors 3 and 4; QEMU opens the pipes itself.
    if [[ $LAB_BACKEND == vm-uml ]]; then
        setsid setpriv --pdeathsig KILL "${VM_COMMAND[@]}" \
            </dev/null >"$dir/console" 2>&1 3>"$dir/out" 4>"$dir/err" &
    else
        setsid setpriv --pdeathsig KILL "${VM_COMMAND[@]}" \
            </dev/null > >(cat >"$dir/console") 2> >(cat >"$dir/qemu") &
    fi
    VM_PIDS[host]=$!
}

vm_stop_all() {
    local pid fifo
    for pid in "${VM_PIDS[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true; done
    for pid in "${VM_PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    VM_PIDS=()
    for pid in $SWITCH_PID $FUNCTION_PIDS; do { kill -KILL "$pid"; wait "$pid"; } 2>/dev/null || true; done
    SWITCH_PID='' FUNCTION_PIDS=''
    # Opens each pipe, because a reader blocks forever if its machine never opened the other end.
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

# Succeeds unless a machine has ended that its command did not turn off.
all_vms_alive() {
    local host
    for host in "${!VM_PIDS[@]}"; do
        [[ -e $VM_DIR/host$host/off ]] || kill -0 "${VM_PIDS[host]}" 2>/dev/null || return 1
    done
}

# Waits until host N's machine has created a file: vm_await N FILE DEADLINE (ms). Returns 1 if a
# machine has ended or reports a failure, and 2 after the deadline.
vm_await() {
    local host=$1 file=$VM_DIR/host$1/$2 deadline=$3
    while [[ ! -e $file ]]; do
        if ! all_vms_alive || [[ -n $(compgen -G "$VM_DIR/host*/failure") ]]; then [[ -e $file ]] && return; return 1; fi
        (($(date +%s%3N) < deadline)) || return 2
        sleep 0.1
    done
}

vm_failed() {
    local dir=$VM_DIR/host$1 problem=$2
    vm_stop_all
    {
        echo "lab: $problem"
        [[ ! -e $dir/failure ]] || sed 's/^/lab: guest: /' "$dir/failure"
        [[ ! -e $dir/qemu ]] || tail -n 5 "$dir/qemu" | sed 's/^/lab: QEMU: /'
        echo "lab: last lines of the console:"
        tail -n 60 "$dir/console" | tr -d '\r' | sed 's/^/    /'
    } >&2
    return "$STATUS_LAB_FAILED"
}

# Runs the prepared machines and returns the status of the last host's command: vm_run HOSTS TIMEOUT
# (in seconds, 0: none).
vm_run() {
    local hosts=$1 timeout=$2 status=0 deadline
    deadline=$(date +%s%3N)
    deadline=$((timeout > 0 ? deadline + timeout * 1000 : deadline + 10 ** 12))
    vm_boot "$hosts" "$deadline" || status=$?
    if ((status == 1)); then
        # Emulated kernels occasionally die or hang while they patch their own code (ci/README.md).
        # The command has not started yet.
        info "the kernel did not boot: starting it again"
        rm -f "$VM_DIR"/host*/started
        status=0
        vm_boot "$hosts" "$deadline" || status=$?
        ((status != 1)) || status=$STATUS_LAB_FAILED
    fi
    ((status == 0)) || return "$status"
    info "up; running the command"
    vm_await_command "$hosts" "$deadline" "$timeout"
}

# Starts the machines and waits until all are up: vm_boot HOSTS DEADLINE. Returns 1 if an emulated
# kernel panicked or hangs, which may not happen again.
vm_boot() {
    local hosts=$1 deadline=$2 host status boot_deadline
    boot_deadline=$(($(date +%s%3N) + BOOT_LIMIT * 1000))
    ((hosts <= 2)) || start_switch "$hosts"
    for ((host = 1; host <= hosts; host++)); do vm_start "$host" "$hosts"; done
    for ((host = 1; host <= hosts; host++)); do
        status=0
        vm_await "$host" started $((deadline < boot_deadline ? deadline : boot_deadline)) || status=$?
        if ((status == 1)); then
            vm_failed "$host" "the virtual machine ended before its RDMA devices were up" || status=$?
            if [[ $LAB_BACKEND == vm-tcg && ! -e $VM_DIR/host$host/failure ]] && grep -q 'Kernel panic' "$VM_DIR/host$host/console"; then status=1; fi
            return "$status"
        elif ((status == 2)); then
            vm_failed "$host" "the virtual machine did not start in time" || status=$?
            if (($(date +%s%3N) >= deadline)); then status=$STATUS_TIMEOUT; else status=1; fi
            return "$status"
        fi
    done
}

vm_await_command() {
    local hosts=$1 deadline=$2 host file result=0 status
    vm_await "$hosts" status "$deadline" || result=$?
    case $result in
    1) vm_failed "$hosts" "the virtual machine ended before its command did"; return ;;
    2) vm_stop_all; info "the time limit of $3 s has ended the command"; return "$STATUS_TIMEOUT" ;;
    esac
    status=$(<"$VM_DIR/host$hosts/status")
    for ((host = 1; host < hosts; host++)); do
        file=$VM_DIR/host$host/status
        if [[ -e $file && $(<"$file") != 0 ]]; then info "note: host$host's command had ended with status $(<"$file")"; fi
    done
    vm_stop_all
    info "the command ended with status $status"
    return "$status"
}

# Runs an interactive shell on the machine's console.
vm_shell() {
    local status=0
    vm_command 1 1 shell
    "${VM_COMMAND[@]}" 2> >(cat >"$VM_DIR/host1/qemu") || true
    [[ ! -t 0 ]] || stty sane
    [[ -e $VM_DIR/host1/status ]] || vm_failed 1 "the virtual machine ended without a status" || return
    status=$(<"$VM_DIR/host1/status")
    return "$status"
}
