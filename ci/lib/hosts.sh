# shellcheck shell=bash
# Runs a command on this machine itself: on its RDMA devices, or on rxe0 and siw0 that are added to
# its kernel during the command.

HOST_KERNEL_PROBLEM=

# shellcheck disable=SC2034 # read by guest/devices
LAB_HOST=1 LAB_HOSTS=1
# shellcheck source-path=SCRIPTDIR source=../guest/devices
. "$LAB_SCRIPTS/guest/devices"

# Succeeds if the running kernel can add the lab's links. Does not change anything except loading
# the module rdma_rxe.
host_kernel_supported() {
    HOST_KERNEL_PROBLEM=
    if ((EUID != 0)); then
        HOST_KERNEL_PROBLEM="adding links needs root"
    elif ! have rdma || ! have modprobe; then
        HOST_KERNEL_PROBLEM="the programs rdma (iproute2) and modprobe (kmod) are not installed"
    elif [[ -e /sys/class/infiniband/rxe0 || -e /sys/class/infiniband/siw0 || -e /sys/class/net/rxenet ]]; then
        HOST_KERNEL_PROBLEM="a device rxe0 or siw0 exists already (--host uses it)"
    elif [[ ! -d /sys/module/rdma_rxe ]] && ! modprobe -q rdma_rxe; then
        HOST_KERNEL_PROBLEM="there is no module rdma_rxe"
    fi
    [[ -z $HOST_KERNEL_PROBLEM ]]
}

run_on_host_kernel() {
    local timeout=$1 status=0
    shift
    info "adding rxe0 and siw0 to this machine's kernel during the command"
    trap remove_lab_devices EXIT
    modprobe -a crc32_generic ib_uverbs rdma_ucm ib_umad 2>/dev/null || true
    modprobe -q siw || info "this kernel has no siw: rxe0 only"
    make_lab_devices || die "creating the RDMA devices in this machine's kernel failed" "help: RDMA_LAB=vm uses a virtual machine"
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
    info "running on this machine's own devices: $RDMA_LAB_DEVICES"
    with_device_lock run_limited "$timeout" "$@"
}

# Runs a command when no other one runs here, because tests count the objects of the devices.
with_device_lock() {
    local lock status=0
    mkdir -p "$LAB_CACHE"
    exec {lock}>"$LAB_CACHE/.devices"
    if ! flock -n "$lock"; then
        info "waiting for another command on this machine's own devices"
        flock "$lock"
    fi
    "$@" {lock}>&- || status=$?
    exec {lock}>&-
    return "$status"
}

run_limited() {
    local timeout=$1 line
    shift
    ulimit -l unlimited 2>/dev/null || info "note: locked memory is limited to $(ulimit -l) KiB"
    ulimit -n 65536 2>/dev/null || true
    line=$(shell_line "$@")
    if ((timeout > 0)); then
        timeout --kill-after=5 "$timeout" bash -c "$line"
    else
        bash -c "$line"
    fi
}
