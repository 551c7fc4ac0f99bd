# shellcheck shell=bash
# Downloads packages of suites of Debian that are not enabled on the machine: the kernel of trixie
# (Debian 13) if apt of the machine has none of the series of lib/kernel.sh, and on request the
# newest kernel in trixie-backports. lib/vfio_user.sh downloads a newer QEMU. apt reads the lists
# with a configuration in the cache, and checks the signatures of the suites and the checksums of
# the packages as usual.

readonly DEBIAN_SUITES='trixie trixie-backports'
readonly DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

fill_backports_cache() {
    local version
    [[ $(uname -m) == x86_64 ]] || die "virtual machines of the lab need x86_64, this machine is $(uname -m)"
    if ! have apt-get || ! have dpkg-deb; then
        die "the kernel of trixie-backports is downloaded with apt-get and dpkg-deb, which are not available"
    fi
    ensure_packages cache
    read_debian_lists || die "reading the lists of trixie-backports failed"
    version=$(version_in_suite trixie-backports)
    [[ -n $version ]] || die "trixie-backports has no linux-image-amd64"
    make_kernel "$version" download_from_debian prepare_newer_kbuild
}

# Installs the keys with which Debian signs its suites. Ubuntu has them in the component universe.
ensure_debian_keyring() {
    [[ -e $DEBIAN_KEYRING ]] || (install_packages debian-archive-keyring) ||
        die "$DEBIAN_KEYRING is missing. On Ubuntu, enable its component: add-apt-repository universe. Or copy the file from a Debian machine"
}

read_debian_lists() {
    ensure_debian_keyring
    mkdir -p "$LAB_CACHE/apt/lists/partial" "$LAB_CACHE/apt/archives/partial"
    printf '%s\n' 'Types: deb' "URIs: $(debian_mirror)" "Suites: $DEBIAN_SUITES" 'Components: main' \
        'Architectures: amd64' "Signed-By: $DEBIAN_KEYRING" >"$LAB_CACHE/apt/debian.sources"
    run_logged "reading the lists of $DEBIAN_SUITES" with_suites apt-get -q update
}

# Prints the address of the Debian mirror that this machine uses.
debian_mirror() {
    local mirror
    # shellcheck disable=SC2016 # apt expands it
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | sed -n 1p)
    echo "${mirror:-http://deb.debian.org/debian/}"
}

# Runs a program of apt on the suites: with_suites PROGRAM ARGUMENT…
with_suites() {
    local program=$1 apt=$LAB_CACHE/apt
    shift
    "$program" -o Dir::Etc::SourceList="$apt/debian.sources" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$apt" \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
}

# Prints the version that the metapackage of a suite depends on, for example 7.3.4+deb13-amd64.
version_in_suite() { # SUITE
    with_suites apt-cache depends "linux-image-amd64/$1" |
        sed -n 's/.*Depends: linux-image-\([0-9][^ ]*-amd64\)$/\1/p' | sed -n 1p
}

# Downloads the kernel, and the libraries that the programs of linux-kbuild need.
download_from_debian() {
    local version=$1 dir=$2 base=${1%-amd64} package packages=()
    # Only recent kernels are divided into several packages.
    for package in linux-{image,binary,base,modules}-"$version"; do
        [[ -z $(with_suites apt-cache show "$package" 2>/dev/null | sed -n 1p) ]] || packages+=("$package")
    done
    run_logged "downloading Debian's kernel $version, headers and source (300 MB)" \
        fetch_from_debian "$dir" "${packages[@]}" "linux-headers-$version" "linux-headers-$base-common" "linux-kbuild-$base" \
        "linux-source-$(kernel_series "$version")" libc6 libelf1t64 zlib1g libzstd1 ||
        die "downloading Debian's kernel $version failed"
}

fetch_from_debian() { # DIR PACKAGE…
    cd "$1" && with_suites apt-get -q download "${@:2}"
}

# Makes the programs of linux-kbuild, which need a newer glibc than Debian 12 has, run with that of
# trixie. Two of them only start the program for the configured processor, and are replaced by it.
#
# The kernel was compiled with a newer gcc as well. The compiler of this machine may not know
# -fmin-function-alignment (gcc 14); without the option, kbuild uses -falign-functions.
prepare_newer_kbuild() {
    local work=$2 libraries=$2/libraries/usr/lib/x86_64-linux-gnu kbuild program
    unpack_packages "$work/libraries" "$work"/debs/lib*.deb
    kbuild=$work/headers/usr/lib/linux-kbuild-${1%-amd64}
    for program in scripts/basic/fixdep scripts/mod/modpost.real-lsb-64 tools/objtool/objtool.real-x86; do
        mv "$kbuild/$program" "$kbuild/$program.elf"
        printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
            "$libraries/ld-linux-x86-64.so.2" "$libraries" "$kbuild/$program.elf" >"$kbuild/${program%.real-*}"
        chmod +x "$kbuild/${program%.real-*}"
    done
    SIW_BUILD=(CC=gcc HOSTCC=gcc)
    gcc -fmin-function-alignment=16 -fsyntax-only -x c /dev/null 2>/dev/null || SIW_BUILD+=(CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=)
}
