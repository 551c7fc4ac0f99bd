# shellcheck shell=bash
# Builds a kernel from Debian's linux-source of the lab's series and a configuration beside this
# file, on request:
#
#   kernel-debug.config  with KASAN and lockdep; some ten minutes on two processors
#   kernel-uml.config    runs as a process (User-Mode Linux); some six minutes
#
# The build takes up to 1.5 GB of disk space in the cache, which it frees at the end.

fill_built_cache() { # debug | uml
    local name=$1 work=$LAB_CACHE/kernel/work make
    configure_built_kernel "$name" "$work"
    run_logged "building the $name kernel (some minutes)" "${make[@]}" vmlinux modules
    run_logged "installing the $name kernel" install_built_kernel "$work/linux-source-$KERNEL_SERIES" "$work/kernel" "${make[@]}"
    publish_kernel "$("${make[@]}" kernelrelease)" "$work"
}

# Installs what the build needs, unpacks the source, and configures it. Sets `make` to the command
# of the build: configure_built_kernel NAME WORK
configure_built_kernel() {
    local name=$1 work=$2 config=$LAB_SCRIPTS/lib/kernel-$1.config source
    [[ $(uname -m) == x86_64 ]] || die "the $name kernel needs x86_64, this machine is $(uname -m)"
    if ! have apt-get || ! have dpkg-deb; then
        die "the $name kernel is built from Debian's source, which needs apt-get and dpkg-deb"
    fi
    ensure_packages cache kernel
    rm -rf "$work"
    mkdir -p "$work/debs"
    fetch_kernel_source "$work/debs"
    run_logged "unpacking linux-source-$KERNEL_SERIES" unpack_kernel_source "$work"
    source=$work/linux-source-$KERNEL_SERIES
    make=(make -s -C "$source" -j "$(nproc)")
    [[ $name != debug ]] || correct_siw_locks "$source/drivers/infiniband/sw/siw"
    if [[ $name == uml ]]; then
        make+=(ARCH=um)
        enlarge_registers "$source/arch/x86/um/user-offsets.c"
    fi
    run_logged "configuring the $name kernel" "${make[@]}" KCONFIG_ALLCONFIG="$config" allnoconfig
    require_options "$source/.config" "$config"
    # With the headers that programs like bc generate.
    run_logged "preparing the build of the $name kernel" "${make[@]}" prepare
}

fetch_kernel_source() { # DIR
    fetch_packages "$1" "linux-source-$KERNEL_SERIES" && return
    refresh_apt_lists
    fetch_packages "$1" "linux-source-$KERNEL_SERIES" || die "downloading linux-source-$KERNEL_SERIES failed"
}

# Without code that no configuration here uses, which is more than a third of it.
unpack_kernel_source() {
    dpkg-deb --fsys-tarfile "$1/debs/linux-source-$KERNEL_SERIES"_*.deb |
        tar -xO "./usr/src/linux-source-$KERNEL_SERIES.tar.xz" | xz -dc -T0 |
        tar -x -C "$1" --wildcards --exclude='*/drivers/'{gpu,media,staging}'/*.[ch]' --exclude='*/sound/*.[ch]'
}

# lockdep stops at its first report, so a known fault would hide all others. siw takes the lock of a
# socket's callbacks without disabling soft interrupts, which also take it (docs/drivers.md, fault
# 52).
correct_siw_locks() { # DIR
    sed -i -E 's/\b(read_(un)?lock)(\(&sk->sk_callback_lock\))/\1_bh\3/' "$1"/siw_cm.c "$1"/siw_qp.c
    grep -q 'read_lock_bh(&sk->sk_callback_lock)' "$1/siw_cm.c" || die "siw's callbacks have changed: revise correct_siw_locks"
}

# User-Mode Linux saves the registers of a processor with AVX-512. One with AMX has 11008 bytes of
# them, and the first process then dies with "ptrace set fp regs failed". Linux 6.13 asks the host
# for the size. They are part of each kernel stack, whose size kernel-uml.config doubles.
enlarge_registers() { # FILE
    sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 12288)/' "$1"
    grep -q 'HOST_FP_SIZE, 12288' "$1" || die "the size of registers has changed: revise enlarge_registers"
}

# An option whose dependencies changed is dropped without a message.
require_options() { # BUILT WANTED
    local option
    while read -r option; do
        grep -qxF "$option" "$1" || die "the built kernel's configuration lacks $option" \
            "help: add what it depends on to $2"
    done < <(grep '^CONFIG_' "$2")
}

install_built_kernel() { # SOURCE DIR MAKE…
    local version
    version=$("${@:3}" kernelrelease)
    "${@:3}" INSTALL_MOD_PATH="$2" DEPMOD=true modules_install
    rm -f "$2/lib/modules/$version/build"
    # User-Mode Linux is a program.
    install -D -m 755 "$1/vmlinux" "$2/boot/vmlinux-$version"
}
