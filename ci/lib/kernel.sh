# shellcheck shell=bash
# Fills the cache with a kernel that has Soft-RoCE and Soft-iWARP: Debian's unpacked image, its
# modules, and siw, which Debian does not build.
#
#   $LAB_CACHE/kernel/VERSION/boot/vmlinuz-VERSION, vmlinux-VERSION
#   $LAB_CACHE/kernel/VERSION/lib/modules/VERSION/
#   $LAB_CACHE/kernel/current → VERSION, created last, when the cache is complete
#   $LAB_CACHE/kernel/backports → VERSION, the same for the kernel of lib/backports.sh
#   $LAB_CACHE/kernel/debug → VERSION, the same for a kernel of lib/built_kernel.sh; also uml

readonly KERNEL_SERIES=6.12
# Parts of the module tree that a lab can need. They are stored uncompressed, because that loads
# much faster under emulation.
readonly MODULE_DIRS=(
    drivers/infiniband/core drivers/infiniband/sw drivers/infiniband/ulp drivers/infiniband/hw/mlx5
    drivers/net/ethernet/mellanox/{mlx5,mlxfw} drivers/pci/controller
    drivers/net/{veth,dummy,virtio_net,net_failover,ifb}.ko.xz drivers/net/{bonding,macvlan}
    drivers/virtio drivers/block/virtio_blk.ko.xz drivers/nvme
    fs/9p fs/netfs fs/configfs fs/overlayfs fs/fuse fs/nls fs/nfs fs/nfsd fs/nfs_common fs/lockd net lib crypto arch/x86/crypto
)

# Prints the name of the wanted kernel in the cache: current, backports, debug or uml.
wanted_kernel() { echo "${RDMA_LAB_KERNEL:-current}"; }

wants_custom_kernel() { [[ ! $(wanted_kernel) =~ ^(current|backports|debug|uml)$ ]]; }

# Prints the link to the wanted kernel in the cache.
kernel_link() { echo "$LAB_CACHE/kernel/$(wanted_kernel)"; }

cached_kernel() {
    local link
    link=$(kernel_link)
    # An installed kernel of this machine is a link to all its modules. A cache without these
    # modules is from a version of the lab that did not include them. The driver of mlx5 is needed
    # with --vfio-user only, so other commands do not fill the cache for it.
    [[ -L $link && -d $link/lib/modules ]] || return
    if [[ $(wanted_kernel) != debug && ! -L $(echo "$link"/lib/modules/*) && ! -d $(echo "$link"/lib/modules/*/kernel/drivers/nvme) ]]; then
        return 1
    fi
    [[ -z ${LAB_FUNCTIONS[0]:-} || -d $(echo "$link"/lib/modules/*/kernel/drivers/infiniband/hw/mlx5) ]] || return
    readlink "$link"
}

# shellcheck disable=SC2034 # used by other files
# Sets KERNEL_IMAGE, KERNEL_VERSION and KERNEL_MODULES.
find_kernel() {
    if wants_custom_kernel; then
        use_custom_kernel
        return
    fi
    KERNEL_VERSION=$(cached_kernel)
    KERNEL_IMAGE=$(bootable_image "$LAB_CACHE/kernel/$KERNEL_VERSION/boot" "$KERNEL_VERSION")
    KERNEL_MODULES=$LAB_CACHE/kernel/$KERNEL_VERSION/lib/modules/$KERNEL_VERSION
}

bootable_image() {
    if [[ -e $1/vmlinux-$2 ]]; then echo "$1/vmlinux-$2"; else echo "$1/vmlinuz-$2"; fi
}

# shellcheck disable=SC2034 # used by other files
# Uses RDMA_LAB_KERNEL=vmlinuz with RDMA_LAB_MODULES=…/lib/modules/VERSION.
use_custom_kernel() {
    [[ -r $RDMA_LAB_KERNEL ]] || die "RDMA_LAB_KERNEL=$RDMA_LAB_KERNEL: file not found or not readable"
    [[ -d ${RDMA_LAB_MODULES:-} ]] ||
        die "with RDMA_LAB_KERNEL, set RDMA_LAB_MODULES to its directory …/lib/modules/VERSION"
    KERNEL_MODULES=$(realpath "$RDMA_LAB_MODULES")
    KERNEL_VERSION=${KERNEL_MODULES##*/}
    [[ ${KERNEL_MODULES%/*} == */lib/modules ]] ||
        die "RDMA_LAB_MODULES=$RDMA_LAB_MODULES must end in lib/modules/VERSION"
    VM_DIR=${VM_DIR:-$(make_vm_dir)}
    KERNEL_IMAGE=$(link_kernel "$RDMA_LAB_KERNEL" "$KERNEL_MODULES" "$VM_DIR/kernel")
}

# Links a kernel into the layout that modprobe expects, and prints the path of its image.
link_kernel() {
    local image=$1 modules=$2 dir=$3 version=${2##*/}
    mkdir -p "$dir/boot" "$dir/lib/modules"
    ln -sfn "$(realpath "$image")" "$dir/boot/vmlinuz-$version"
    ln -sfn "$modules" "$dir/lib/modules/$version"
    echo "$dir/boot/vmlinuz-$version"
}

# Prints the newest installed kernel of this machine that has rdma_rxe.
installed_kernel_with_rxe() {
    local image version
    for image in /boot/vmlinuz-*; do
        version=${image#/boot/vmlinuz-}
        [[ -r $image && -n $(find "/lib/modules/$version/" -name 'rdma_rxe.ko*' 2>/dev/null) ]] && echo "$version"
    done | sort -V | tail -n 1
}

use_installed_kernel() {
    local version
    version=$(installed_kernel_with_rxe)
    [[ -n $version ]] || return
    info "using this machine's installed kernel $version"
    link_kernel "/boot/vmlinuz-$version" "/lib/modules/$version" "$LAB_CACHE/kernel/$version" >/dev/null
    ln -sfn "$version" "$LAB_CACHE/kernel/current"
}

# shellcheck disable=SC2034 # used below
# Finds a kernel for the cache before anything is installed. Sets KERNEL_SOURCE to `apt` (the suites
# of this machine), `installed` (in /boot) or `trixie` (the list of lib/backports.sh).
find_kernel_source() {
    [[ $(uname -m) == x86_64 ]] || die "virtual machines of the lab need x86_64, this machine is $(uname -m)" \
        "help: use this machine's RDMA devices with --host, or its kernel as root if it has rdma_rxe"
    KERNEL_SOURCE=apt
    if have apt-get && have dpkg-deb && [[ -n $(debian_kernel_version) ]]; then return; fi
    KERNEL_SOURCE=installed
    [[ -z $(installed_kernel_with_rxe) ]] || return 0
    if ! have apt-get || ! have dpkg-deb; then
        die "no kernel found: apt, which downloads Debian's kernel $KERNEL_SERIES, is not available," \
            "and no kernel in /boot has rdma_rxe in /lib/modules/VERSION" \
            "help: set RDMA_LAB_KERNEL=/boot/vmlinuz-VERSION and RDMA_LAB_MODULES=/lib/modules/VERSION to a kernel" \
            "with the modules rdma_rxe, siw (if possible), virtio_net, veth, 9p and 9pnet_virtio," \
            "and install the packages: $(missing_packages vm cache | xargs)"
    fi
    KERNEL_SOURCE=trixie
    info "apt of this machine has no kernel of the series $KERNEL_SERIES: using that of Debian 13"
    read_debian_lists || die "no kernel found: apt has no linux-image of the series $KERNEL_SERIES, no kernel in /boot has rdma_rxe," \
        "and the lists of Debian 13 could not be read" \
        "help: install a kernel with rdma_rxe," \
        "or set RDMA_LAB_KERNEL=/boot/vmlinuz-VERSION and RDMA_LAB_MODULES=/lib/modules/VERSION"
}

fill_kernel_cache() {
    local version
    [[ -n ${KERNEL_SOURCE:-} ]] || find_kernel_source
    if [[ $KERNEL_SOURCE == installed ]]; then
        use_installed_kernel
        return
    fi
    ensure_packages cache
    if [[ $KERNEL_SOURCE == apt ]]; then
        make_kernel "$(debian_kernel_version)" download_kernel_packages prepare_kbuild
    else
        version=$(version_in_suite trixie)
        [[ -n $version ]] || die "Debian 13 has no linux-image-amd64"
        make_kernel "$version" download_from_debian prepare_newer_kbuild
    fi
}

# Fills the cache with a kernel: make_kernel VERSION DOWNLOAD PREPARE. DOWNLOAD (VERSION DIR)
# fetches the packages. PREPARE (VERSION WORK) makes the build system in the headers run on this
# machine, and sets SIW_BUILD to the arguments of make that the compiler needs.
make_kernel() {
    local version=$1 work=$LAB_CACHE/kernel/work
    rm -rf "$work"
    mkdir -p "$work/debs"
    "$2" "$version" "$work/debs"
    unpack_image "$version" "$work"
    build_siw "$version" "$work" "$3" ||
        info "building siw failed: the lab will have rxe0 only"
    publish_kernel "$version" "$work"
}

# Prints the version that the metapackage depends on, for example 6.12.117+deb12-amd64.
debian_kernel_version() {
    local version
    version=$(newest_kernel_known_to_apt)
    if [[ -z $version ]]; then
        refresh_apt_lists >&2 || true
        version=$(newest_kernel_known_to_apt)
    fi
    echo "$version"
}

newest_kernel_known_to_apt() {
    local meta
    for meta in "linux-image-$KERNEL_SERIES-amd64" linux-image-amd64; do
        apt-cache depends "$meta" 2>/dev/null |
            sed -n "s/.*Depends: linux-image-\(${KERNEL_SERIES}[^ ]*-amd64\)$/\1/p"
    done | sed -n 1p
}

download_kernel_packages() {
    local version=$1 base=${1%-amd64}
    local packages=("linux-image-$version" "linux-headers-$version" "linux-headers-$base-common"
        "linux-kbuild-$base" "linux-source-$KERNEL_SERIES=$(package_version "linux-headers-$version")")
    fetch_packages "$2" "${packages[@]}" && return
    refresh_apt_lists
    fetch_packages "$2" "${packages[@]}" || die "downloading the kernel's packages with apt failed"
}

package_version() { apt-cache policy "$1" | sed -n 's/ *Candidate: //p'; }

fetch_packages() {
    local dir=$1
    shift
    run_logged "downloading Debian's kernel, headers and source (280 MB)" \
        env -C "$dir" apt-get -q -o APT::Sandbox::User=root download "$@"
}

unpack_image() {
    local version=$1 work=$2 tree dest
    run_logged "unpacking linux-image-$version" unpack_packages "$work/image" "$work/debs"/linux-{image,binary,base,modules}-"$version"_*.deb
    tree=$(find "$work/image" -type d -path "*/lib/modules/$version" | sed -n 1p)
    dest=$work/kernel/lib/modules/$version
    mkdir -p "$work/kernel/boot" "$dest/kernel"
    # Recent packages have the image among the modules.
    cp "$(find "$work/image/boot/vmlinuz-$version" "$tree/vmlinuz" 2>/dev/null | sed -n 1p)" "$work/kernel/boot/vmlinuz-$version"
    extract_vmlinux "$work/kernel/boot/vmlinuz-$version" "$work/kernel/boot/vmlinux-$version" ||
        rm -f "$work/kernel/boot/vmlinux-$version"
    run_logged "copying the modules of the lab" copy_modules "$tree" "$dest"
}

# Unpacks the existing ones of some packages: unpack_packages DIR PACKAGE…
unpack_packages() {
    local dir=$1 package
    shift
    for package in "$@"; do
        [[ ! -e $package ]] || dpkg-deb -x "$package" "$dir" || return
    done
}

# Extracts the kernel from the compressed image: it starts a second sooner under emulation, through
# its PVH entry. The image's header has its offset. The last four bytes are the unpacked length,
# which zstd must not see.
extract_vmlinux() {
    local setup offset length
    setup=$(od -An -tu1 -j 497 -N 1 "$1")
    read -r offset length < <(od -An -tu4 -j 584 -N 8 "$1")
    offset=$((offset + (setup + 1) * 512))
    dd if="$1" bs=1M iflag=skip_bytes,count_bytes skip="$offset" count=$((length - 4)) status=none |
        zstd -q -d -f -o "$2" 2>/dev/null
}

copy_modules() {
    local tree=$1 dest=$2 part
    cp "$tree"/modules.builtin* "$tree"/modules.order "$dest/"
    for part in "${MODULE_DIRS[@]}"; do
        [[ ! -e $tree/kernel/$part ]] || (cd "$tree" && cp -a --parents "kernel/$part" "$dest/")
    done
    find "$dest" -name '*.ko.xz' -print0 | xargs -0 -r -P "$(nproc)" -n 32 xz -d
}

# Builds drivers/infiniband/sw/siw outside the kernel tree, with unpacked headers packages.
build_siw() {
    local version=$1 work=$2 headers=$2/headers/usr/src/linux-headers-$1 series
    local SIW_BUILD=()
    series=$(kernel_series "$version")
    unpack_headers "$version" "$work"
    "$3" "$version" "$work"
    run_logged "unpacking siw from linux-source-$series" unpack_siw_source "$series" "$work" &&
        run_logged "building siw.ko for $version" \
            make -C "$headers" M="$work/siw" CONFIG_RDMA_SIW=m "${SIW_BUILD[@]}" modules &&
        install -D -m 644 "$work/siw/siw.ko" \
            "$work/kernel/lib/modules/$version/kernel/drivers/infiniband/sw/siw/siw.ko"
}

# Prints the series of a version, such as 6.12.
kernel_series() { grep -oE '^[0-9]+\.[0-9]+' <<<"$1"; }

# Unpacks the headers. Their Makefile includes the common one by an absolute path, which is changed
# to the cache. Their vmlinux is only used to add BTF, which needs another tool.
unpack_headers() {
    local version=$1 work=$2 package
    for package in "linux-headers-$version" "linux-headers-${version%-amd64}-common" "linux-kbuild-${version%-amd64}"; do
        dpkg-deb -x "$work/debs/$package"_*.deb "$work/headers"
    done
    sed -i "s|/usr/src/|$work/headers/usr/src/|" "$work/headers/usr/src/linux-headers-$version/Makefile"
    rm -f "$work/headers/usr/src/linux-headers-$version/vmlinux"
}

# Prints the compiler that the headers package depends on.
headers_compiler() {
    dpkg-deb -f "$2/debs/linux-headers-$1"_*.deb Depends | grep -oE 'gcc-[0-9]+' | sed -n 1p
}

# Installs the compiler of the headers, and libelf, which their own programs (objtool) need.
prepare_kbuild() {
    local compiler objtool
    compiler=$(headers_compiler "$1" "$2")
    have "$compiler" || install_packages "$compiler"
    objtool=$(find "$2/headers" -type f -name 'objtool*' -perm -u+x | sed -n 1p)
    if [[ -n $objtool ]] && ldd "$objtool" | grep 'libelf.*not found' >/dev/null; then
        install_packages libelf1
    fi
}

unpack_siw_source() {
    local source=linux-source-$1 work=$2
    mkdir -p "$work/siw"
    dpkg-deb --fsys-tarfile "$work/debs/$source"_*.deb |
        tar -xO "./usr/src/$source.tar.xz" |
        xz -dc -T0 |
        tar -x -C "$work/siw" --strip-components=5 "$source/drivers/infiniband/sw/siw"
    [[ -e $work/siw/siw_main.c ]]
}

# Indexes the modules, then sets the link of the wanted kernel to it. An earlier kernel of this
# version may have a link. It is moved away whole, so that a kill does not leave a part of it there.
publish_kernel() {
    local version=$1 work=$2
    run_logged "indexing the modules" depmod_path -b "$work/kernel" "$version"
    [[ ! -e $LAB_CACHE/kernel/$version ]] || mv -T "$LAB_CACHE/kernel/$version" "$work/earlier"
    mv -T "$work/kernel" "$LAB_CACHE/kernel/$version"
    ln -sfn "$version" "$(kernel_link)"
    rm -rf "$work"
    info "kernel $version is in the cache ($(du -sh "$LAB_CACHE/kernel/$version" | cut -f1))"
}

depmod_path() { PATH=$PATH:/usr/sbin:/sbin depmod "$@"; }
