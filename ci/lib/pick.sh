# shellcheck shell=bash
# Selects where a command runs: on the host's devices, the host's kernel, or in a virtual machine
# with KVM, emulation or User-Mode Linux.

# Sets LAB_BACKEND for a request (auto, host, kernel, vm, kvm, tcg, uml).
pick_backend() {
    if ((${#LAB_FUNCTIONS[@]} > 0)); then
        case $1 in
        auto | vm) pick_accelerator; return ;;
        host | kernel | uml) die "--vfio-user and --device need a virtual machine, not RDMA_LAB=$1" "help: available with RDMA_LAB=vm, kvm and tcg" ;;
        esac
    fi
    if [[ $(wanted_kernel) == backports || $(wanted_kernel) == debug ]]; then
        case $1 in
        auto | vm) pick_accelerator; return ;;
        host | kernel) die "the kernel '$(wanted_kernel)' needs a virtual machine, not RDMA_LAB=$1" "help: available with RDMA_LAB=vm, kvm and tcg" ;;
        esac
    fi
    case $1 in
    host) LAB_BACKEND=host-devices ;;
    kernel)
        host_kernel_supported || die "this machine's kernel cannot run the lab: $HOST_KERNEL_PROBLEM"
        LAB_BACKEND=host-kernel
        ;;
    kvm) LAB_BACKEND=vm-kvm ;;
    tcg) LAB_BACKEND=vm-tcg ;;
    uml) use_uml ;;
    vm) pick_accelerator ;;
    auto)
        if host_kernel_supported; then LAB_BACKEND=host-kernel; else pick_accelerator; fi
        ;;
    *) die "RDMA_LAB=$1: expected auto, host, kernel, vm, kvm, tcg or uml" ;;
    esac
}

# shellcheck disable=SC2034 # used by other files
pick_accelerator() {
    LAB_BACKEND=vm-tcg
    if [[ -r /dev/kvm && -w /dev/kvm ]]; then
        if kvm_works; then LAB_BACKEND=vm-kvm; fi
    elif [[ -e /dev/kvm ]]; then
        info "no permission to use /dev/kvm: emulating (KVM is faster: adduser $(id -un) kvm)"
    fi
}

# A /dev/kvm can exist and still not boot a stock kernel. This boots once and remembers the result
# for this host kernel, processor and QEMU.
kvm_works() {
    local key result=no status=0
    key=$(kvm_key)
    if [[ -e $LAB_CACHE/kvm && $(head -n 1 "$LAB_CACHE/kvm") == "$key" ]]; then
        [[ $(tail -n 1 "$LAB_CACHE/kvm") == yes ]]
        return
    fi
    vm_tools_ready
    info "testing if /dev/kvm can boot a kernel (once; at most $KVM_PROBE_SECONDS s)"
    kvm_probe >"$LAB_CACHE/kvm.log" 2>&1 || status=$?
    ((status != 0)) || result=yes
    printf '%s\n%s\n' "$key" "$result" >"$LAB_CACHE/kvm"
    info "KVM: $result"
    [[ $result == yes ]]
}

readonly KVM_PROBE_SECONDS=8

kvm_key() {
    { uname -r; sed -n '/^model name/{p;q}' /proc/cpuinfo; qemu-system-x86_64 --version 2>&1 | sed -n 1p; } | tr '\n' '|'
}

kvm_probe() {
    RDMA_LAB=kvm "$LAB_SCRIPTS/lab" run --timeout "$KVM_PROBE_SECONDS" --mem 512 --cpus 1 -- true
}

vm_tools_ready() {
    # Without a kernel, nothing else is worth installing.
    if [[ $(wanted_kernel) == current ]] && ! cached_kernel >/dev/null; then find_kernel_source; fi
    ensure_packages vm
    cache_complete || with_cache_lock fill_cache
    ((LAB_MLX5 == 0)) || run_logged "building the adapter" build_mlx5_device || die "building the adapter of --device mlx5 failed"
    # shellcheck disable=SC2034 # used by lib/vm.sh
    ((${#LAB_FUNCTIONS[@]} == 0)) || LAB_QEMU=$(vfio_user_qemu)
    find_kernel
}

cache_complete() { wants_custom_kernel || cached_kernel >/dev/null; }

fill_cache() {
    if cache_complete; then return; fi # another lab has filled it
    case $(wanted_kernel) in
    backports) fill_backports_cache ;;
    debug | uml) fill_built_cache "$(wanted_kernel)" ;;
    *) fill_kernel_cache ;;
    esac
}
