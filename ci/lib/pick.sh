# shellcheck shell=bash
# Where a command runs: the host's devices, the host's kernel, or a virtual
# machine, with KVM or by emulation.

# Sets LAB_BACKEND to what was asked for (auto, host, kernel, vm, kvm, tcg),
# or the best that works.
pick_backend() {
    case $1 in
    host) LAB_BACKEND=host-devices ;;
    kernel)
        host_kernel_can || die "this machine's kernel cannot carry the lab: $HOST_KERNEL_WHY_NOT"
        LAB_BACKEND=host-kernel
        ;;
    kvm) LAB_BACKEND=vm-kvm ;;
    tcg) LAB_BACKEND=vm-tcg ;;
    vm) pick_accelerator ;;
    auto)
        if host_kernel_can; then LAB_BACKEND=host-kernel; else pick_accelerator; fi
        ;;
    *) die "RDMA_LAB=$1: must be auto, host, kernel, vm, kvm or tcg" ;;
    esac
}

# shellcheck disable=SC2034 # for the other parts
pick_accelerator() {
    LAB_BACKEND=vm-tcg
    if [[ -r /dev/kvm && -w /dev/kvm ]]; then
        if kvm_works; then LAB_BACKEND=vm-kvm; fi
    elif [[ -e /dev/kvm ]]; then
        say "no right to use /dev/kvm: emulating (to be quicker: adduser $(id -un) kvm)"
    fi
}

# A /dev/kvm can exist and still not boot a stock kernel. So boot once, and
# remember the answer for this host kernel, processor and QEMU.
kvm_works() {
    local key answer=no status=0
    key=$(kvm_key)
    if [[ -e $LAB_CACHE/kvm && $(head -n 1 "$LAB_CACHE/kvm") == "$key" ]]; then
        [[ $(tail -n 1 "$LAB_CACHE/kvm") == yes ]]
        return
    fi
    vm_tools_ready
    say "trying whether /dev/kvm can boot a kernel (once; at most $KVM_PROBE_SECONDS s)"
    kvm_probe >"$LAB_CACHE/kvm.log" 2>&1 || status=$?
    ((status != 0)) || answer=yes
    printf '%s\n%s\n' "$key" "$answer" >"$LAB_CACHE/kvm"
    say "KVM: $answer"
    [[ $answer == yes ]]
}

readonly KVM_PROBE_SECONDS=8

kvm_key() {
    { uname -r; sed -n '/^model name/{p;q}' /proc/cpuinfo; qemu-system-x86_64 --version 2>&1 | head -n 1; } | tr '\n' '|'
}

kvm_probe() {
    RDMA_LAB=kvm "$LAB_ROOM/lab" run --timeout "$KVM_PROBE_SECONDS" --mem 512 --cpus 1 -- true
}

vm_tools_ready() {
    ensure_vm_tools
    cache_complete || with_cache_lock fill_cache
    find_kernel
}

cache_complete() {
    virtme_installed && { [[ -n ${RDMA_LAB_KERNEL:-} ]] || cached_kernel >/dev/null; }
}

fill_cache() {
    virtme_installed || install_virtme # another lab may have been first
    [[ -n ${RDMA_LAB_KERNEL:-} ]] || cached_kernel >/dev/null || fill_kernel_cache
}
