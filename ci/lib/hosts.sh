# shellcheck shell=bash
# Running on this machine itself: on RDMA devices it has, or on rxe0 and siw0
# added to its kernel for the time of one command.

HOST_KERNEL_WHY_NOT=

# shellcheck disable=SC2034 # read by guest/devices
LAB_HOST=1 LAB_HOSTS=1
# shellcheck source-path=SCRIPTDIR source=../guest/devices
. "$LAB_ROOM/guest/devices"

# Whether the running kernel can add the lab's links, leaving it as it was.
host_kernel_can() {
    HOST_KERNEL_WHY_NOT=
    if ((EUID != 0)); then
        HOST_KERNEL_WHY_NOT="adding links needs root"
    elif ! have rdma || ! have modprobe; then
        HOST_KERNEL_WHY_NOT="the programs rdma (iproute2) and modprobe (kmod) are not installed"
    elif [[ -e /sys/class/infiniband/rxe0 || -e /sys/class/infiniband/siw0 || -e /sys/class/net/rxenet ]]; then
        HOST_KERNEL_WHY_NOT="it has a device rxe0 or siw0 of its own already (--host uses those)"
    elif [[ ! -d /sys/module/rdma_rxe ]] && ! modprobe -q rdma_rxe; then
        HOST_KERNEL_WHY_NOT="it has no module rdma_rxe"
    fi
    [[ -z $HOST_KERNEL_WHY_NOT ]]
}

run_on_host_kernel() {
    local timeout=$1 status=0
    shift
    say "adding rxe0 and siw0 to this machine's kernel for the time of the command"
    trap remove_lab_devices EXIT
    modprobe -a crc32_generic ib_uverbs rdma_ucm ib_umad 2>/dev/null || true
    modprobe -q siw || say "this kernel has no siw: rxe0 only"
    make_lab_devices || die "the RDMA devices could not be made on this machine's kernel; RDMA_LAB=vm uses a virtual machine"
    export_lines < <(describe_devices "$(lab_drivers)")
    export RDMA_LAB_BACKEND=host-kernel
    run_limited "$timeout" "$@" || status=$?
    remove_lab_devices
    trap - EXIT
    return "$status"
}

export_lines() {
    local line
    while IFS= read -r line; do export "${line?}"; done
}

host_device_names() {
    local device names=()
    for device in /sys/class/infiniband/*; do
        [[ ! -e $device ]] || names+=("${device##*/}")
    done
    echo "${names[*]}"
}

run_on_host_devices() {
    local timeout=$1 names
    shift
    names=$(host_device_names)
    [[ -n $names ]] || die "--host: this machine has no RDMA device (/sys/class/infiniband is empty)"
    export RDMA_LAB_DEVICES=$names RDMA_LAB_BACKEND=host-devices RDMA_LAB_HOST=1 RDMA_LAB_HOSTS=1
    say "on this machine's own devices: $RDMA_LAB_DEVICES"
    run_limited "$timeout" "$@"
}

run_limited() {
    local timeout=$1 line
    shift
    ulimit -l unlimited 2>/dev/null || say "note: locked memory is limited to $(ulimit -l) KiB"
    ulimit -n 65536 2>/dev/null || true
    line=$(shell_line "$@")
    if ((timeout > 0)); then
        timeout --kill-after=5 "$timeout" bash -c "$line"
    else
        bash -c "$line"
    fi
}
