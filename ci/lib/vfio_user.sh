# shellcheck shell=bash
# A PCI function in the virtual machine that a program serves over vfio-user.
#
# QEMU connects to such programs since version 10.1. If this machine's QEMU is older, that of
# trixie-backports is unpacked in the cache, with the libraries of trixie that it needs. Nothing is
# installed, and the suites are not enabled:
#
#   $LAB_CACHE/qemu/run         starts it
#   $LAB_CACHE/qemu/ready       is created last

# Packages of trixie with the libraries of QEMU.
readonly QEMU_LIBRARIES=(
    libaio1t64 libatomic1 libblkid1 libbpf1 libc6 libcap2 libcapstone5 libdaxctl1 libelf1t64 libfdt1 libffi8 libfuse3-4
    libgcc-s1 libglib2.0-0t64 libgmp10 libgnutls30t64 libhogweed6t64 libibverbs1 libidn2-0 libjpeg62-turbo
    libkmod2 libmount1 libndctl6 libnettle8t64 libnl-3-200 libnl-route-3-200 libnuma1 libp11-kit0 libpcre2-8-0
    libpixman-1-0 libpmem1 libpng16-16t64 librdmacm1t64 libsasl2-2 libseccomp2 libselinux1 libslirp0 libssl3t64 libtasn1-6
    libudev1 libunistring5 liburing2 libuuid1 libvdeplug2t64 libzstd1 zlib1g
)
FUNCTION_PIDS=''
# The program of --device mlx5, built in the cache.
# shellcheck disable=SC2034 # used by the lab
readonly MLX5_DEVICE=$LAB_CACHE/mlx5-device/release/mlx5-device

# Builds the adapter of --device mlx5 from this project, if its source has changed.
build_mlx5_device() {
    [[ -d $LAB_SCRIPTS/../testing/mlx5-device ]] || die "--device mlx5 needs the whole repository, which has the adapter"
    have cargo || die "--device mlx5 needs cargo, which builds the adapter" "help: install Rust, for example with https://rustup.rs"
    # In the directory of the project, which has the version of Rust.
    cd "$LAB_SCRIPTS/.." &&
        cargo build --release --locked -p mlx5-device --target-dir "$LAB_CACHE/mlx5-device"
}

# Prints the QEMU that can attach a function of vfio-user, after unpacking it if necessary.
vfio_user_qemu() {
    if qemu-system-x86_64 -device help 2>/dev/null | grep vfio-user-pci >/dev/null; then
        echo qemu-system-x86_64
        return
    fi
    [[ -e $LAB_CACHE/qemu/ready ]] || with_cache_lock fill_qemu_cache >&2
    echo "$LAB_CACHE/qemu/run"
}

fill_qemu_cache() {
    local work=$LAB_CACHE/qemu libraries
    [[ ! -e $work/ready ]] || return 0
    if ! have apt-get || ! have dpkg-deb; then
        die "--vfio-user needs QEMU 10.1 or newer, and apt-get and dpkg-deb, which unpack it, are not available"
    fi
    rm -rf "$work"
    mkdir -p "$work/debs"
    read_debian_lists || die "reading the lists of trixie-backports failed"
    run_logged "downloading QEMU of trixie-backports (30 MB)" fetch_from_debian "$work/debs" \
        {qemu-system-x86,qemu-system-data,seabios}/trixie-backports "${QEMU_LIBRARIES[@]}" ||
        die "downloading QEMU of trixie-backports failed"
    run_logged "unpacking QEMU" unpack_packages "$work/root" "$work"/debs/*.deb
    libraries=$work/root/usr/lib/x86_64-linux-gnu
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" -L "%s" -L "%s" "$@"\n' "$libraries/ld-linux-x86-64.so.2" \
        "$libraries" "$work/root/usr/bin/qemu-system-x86_64" "$work/root/usr/share/"{qemu,seabios} >"$work/run"
    chmod +x "$work/run"
    "$work/run" --version >/dev/null || die "QEMU of trixie-backports does not run on this machine"
    rm -rf "$work/debs"
    touch "$work/ready"
}

# Starts the programs of --vfio-user for host N: start_functions N. The guests can read the output
# of all functions as well, and append lines to their standard input, which is a file. The functions
# of all hosts are counted, and the files of the first one have no number.
start_functions() {
    local host=$1 number index i pid socket log orders
    for number in "${!LAB_FUNCTIONS[@]}"; do
        index=$(((host - 1) * ${#LAB_FUNCTIONS[@]} + number + 1)) socket=$VM_DIR/function$host-$number i=0
        ((index > 1)) || index=''
        log=$VM_DIR/shared/function$index.log orders=$VM_DIR/shared/function$index.control
        rm -f "$socket"
        : >"$orders"
        setpriv --pdeathsig KILL "${LAB_FUNCTIONS[number]}" "$socket" <"$orders" >"$log" 2>&1 &
        pid=$!
        FUNCTION_PIDS+=" $pid"
        until [[ -S $socket ]]; do
            if ((i++ == 100)) || ! kill -0 "$pid" 2>/dev/null; then
                die "${LAB_FUNCTIONS[number]} did not open its socket: $(tail -n 5 "$log")"
            fi
            sleep 0.1
        done
    done
}

# Prints the QEMU options of the functions of host N, which need the guest's memory as a file.
function_options() {
    local number
    printf '%s\n' -object "memory-backend-memfd,id=guest,size=${LAB_MEM}M,share=on" -machine memory-backend=guest
    for number in "${!LAB_FUNCTIONS[@]}"; do
        printf '%s\n' -device "pcie-root-port,id=function$number,chassis=$((number + 1))" \
            -device "{\"driver\":\"vfio-user-pci\",\"bus\":\"function$number\",\"socket\":{\"type\":\"unix\",\"path\":\"$VM_DIR/function$1-$number\"}}"
    done
}
