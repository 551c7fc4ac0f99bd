# shellcheck shell=bash
# Builds a kernel with KASAN and lockdep, on request, from Debian's linux-source of the lab's series
# and the configuration in debug-kernel.config. The build takes some ten minutes on two processors
# and 2 GB of disk space in the cache, which it frees at the end.

fill_debug_kernel_cache() {
    local work=$LAB_CACHE/kernel/work source
    if ! have apt-get || ! have dpkg-deb; then
        die "the debug kernel is built from Debian's source, which needs apt-get and dpkg-deb"
    fi
    ensure_build_tools
    install_packages flex bison bc libelf-dev
    rm -rf "$work"
    mkdir -p "$work/debs"
    fetch_kernel_source "$work/debs"
    run_logged "unpacking linux-source-$KERNEL_SERIES" unpack_kernel_source "$work"
    source=$work/linux-source-$KERNEL_SERIES
    correct_siw_locks "$source/drivers/infiniband/sw/siw"
    run_logged "configuring the debug kernel" make -s -C "$source" \
        KCONFIG_ALLCONFIG="$LAB_SCRIPTS/lib/debug-kernel.config" allnoconfig
    require_options "$source/.config"
    run_logged "building the debug kernel (some ten minutes)" \
        make -s -C "$source" -j "$(nproc)" vmlinux modules
    run_logged "installing the debug kernel" install_debug_kernel "$source" "$work/kernel"
    publish_kernel "$(make -s -C "$source" kernelrelease)" "$work"
}

fetch_kernel_source() { # DIR
    fetch_packages "$1" "linux-source-$KERNEL_SERIES" && return
    refresh_apt_lists
    fetch_packages "$1" "linux-source-$KERNEL_SERIES" || die "downloading linux-source-$KERNEL_SERIES failed"
}

unpack_kernel_source() {
    dpkg-deb --fsys-tarfile "$1/debs/linux-source-$KERNEL_SERIES"_*.deb |
        tar -xO "./usr/src/linux-source-$KERNEL_SERIES.tar.xz" | xz -dc -T0 | tar -x -C "$1"
}

# lockdep stops at its first report, so a known fault would hide all others. siw takes the lock of a
# socket's callbacks without disabling soft interrupts, which also take it (DRIVERS.md, fault 52).
correct_siw_locks() { # DIR
    sed -i -E 's/\b(read_(un)?lock)(\(&sk->sk_callback_lock\))/\1_bh\3/' "$1"/siw_cm.c "$1"/siw_qp.c
    grep -q 'read_lock_bh(&sk->sk_callback_lock)' "$1/siw_cm.c" || die "siw's callbacks have changed: revise correct_siw_locks"
}

# An option whose dependencies changed is dropped without a message.
require_options() { # CONFIG
    local option
    while read -r option; do
        grep -qxF "$option" "$1" || die "the debug kernel's configuration lacks $option" \
            "help: add what it depends on to ci/lib/debug-kernel.config"
    done < <(grep '^CONFIG_' "$LAB_SCRIPTS/lib/debug-kernel.config")
}

install_debug_kernel() { # SOURCE DIR
    local version
    version=$(make -s -C "$1" kernelrelease)
    make -s -C "$1" INSTALL_MOD_PATH="$2" DEPMOD=true modules_install
    rm -f "$2/lib/modules/$version/build"
    install -D -m 644 "$1/vmlinux" "$2/boot/vmlinux-$version"
}
