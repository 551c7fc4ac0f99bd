# shellcheck shell=bash disable=SC2034 # other files use the variables
# Starts a machine of lib/vm.sh as a process of User-Mode Linux: Linux on the system calls of this
# machine. It needs no KVM and no privileges, runs programs at the speed of the processor, and
# starts in a second. It has one processor. A system call costs some microseconds, and a page fault
# more.

# Succeeds if labs would be emulated and nothing else was requested.
is_emulated() {
    [[ -z ${RDMA_LAB:-} && -z ${RDMA_LAB_KERNEL:-} && -z ${RDMA_LAB_BACKEND:-} ]] || return 1
    [[ $(ci/lab backend) == vm-tcg ]]
}

# Makes later labs use User-Mode Linux if they would be emulated. Many tests run several times
# faster there, so that building its kernel pays off. Where it does not run, labs are emulated.
prefer_uml() {
    is_emulated || return 0
    if ci/lab setup --uml && ci/lab run -q --uml --timeout 60 -- true; then
        export RDMA_LAB=uml
    else
        info "User-Mode Linux does not run here: using emulation, which is slower"
    fi
}

# Sets LAB_BACKEND. The kernel is built for this purpose.
use_uml() {
    [[ $(wanted_kernel) == current || $(wanted_kernel) == uml ]] ||
        die "RDMA_LAB=uml has a kernel of its own and cannot run '$(wanted_kernel)'" "help: unset RDMA_LAB_KERNEL"
    LAB_BACKEND=vm-uml RDMA_LAB_KERNEL=uml
}

# Prints the guest's configuration that differs from that of a machine of QEMU: the terminals that
# are connected with the output, and the host's description of a processor. uml_config DIR
uml_config() {
    sed '/^$/q' /proc/cpuinfo >"$1/cpuinfo"
    printf "%s='%s'\n" LAB_CONSOLE /dev/tty1 LAB_OUT /dev/tty1 LAB_ERR /dev/tty2 LAB_CPUINFO "$1/cpuinfo"
}

# Prints the directory for the file that is the memory of a machine. The usual one can be small in a
# container.
uml_memory() {
    local available
    available=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
    if ((${available:-0} >= LAB_MEM * 1024)); then echo /dev/shm; else echo "$VM_DIR"; fi
}

# Sets VM_COMMAND to the command line of the kernel: uml_command HOST HOSTS MODE. Consoles are
# descriptors of the process; the first one is the kernel's log.
uml_command() {
    local dir=$VM_DIR/host$1 consoles='con=null con0=null,fd:1 con1=null,fd:3 con2=null,fd:4'
    [[ $3 != shell ]] || consoles='con=null con0=null,fd:2 con1=fd:0,fd:1 loglevel=1'
    read -ra VM_COMMAND <<<"env TMPDIR=$(uml_memory) $KERNEL_IMAGE mem=${LAB_MEM}M rootfstype=hostfs rw init=$dir/init lab_dir=$dir \
        panic=-1 $KERNEL_STALLS net.ifnames=0 $consoles $LAB_KERNEL_ARGUMENTS"
}
