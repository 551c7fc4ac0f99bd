# shellcheck shell=bash
# The programs the lab needs on this machine, installed with apt where it exists.

readonly VIRTME_VERSION=1.42

# shellcheck disable=SC2034 # used by name, in missing_packages
# program → Debian package, for running a virtual machine from a full cache
readonly -A VM_TOOLS=(
    [qemu-system-x86_64]=qemu-system-x86
    [busybox]=busybox-static
    [modprobe]=kmod
    [ip]=iproute2
    [file]=file
)
# shellcheck disable=SC2034
# … and, besides, for filling the cache
readonly -A BUILD_TOOLS=(
    [gcc]=gcc
    [make]=make
    [strings]=binutils
    [xz]=xz-utils
    [zstd]=zstd
    [python3]=python3
)

# The programs our own are compared with, and what building against them needs.
readonly PEER_PACKAGES=(
    rdma-core libibverbs1 ibverbs-providers librdmacm1 libibumad3
    libibverbs-dev librdmacm-dev libibumad-dev pkg-config
    ibverbs-utils rdmacm-utils infiniband-diags perftest qperf
    opensm ibsim-utils libumad2sim0 iproute2 kmod procps
)

apt_quietly() {
    sudo_if_needed env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=600 "$@"
}

# True when apt knows at least one package (a fresh image has empty lists).
apt_lists_present() { apt-cache show iproute2 >/dev/null 2>&1; }

refresh_apt_lists() { run_logged "apt-get update" apt_quietly update; }

install_packages() {
    (($# > 0)) || return 0
    have apt-get || die "there is no apt-get here; install these (Debian's names) yourself: $*"
    apt_lists_present || refresh_apt_lists
    run_logged "installing with apt: $*" apt_quietly install --no-install-recommends "$@" && return
    refresh_apt_lists
    run_logged "installing with apt, again: $*" apt_quietly install --no-install-recommends "$@" ||
        die "apt could not install: $*"
}

# Names the packages for those programs of an associative array that are missing.
missing_packages() {
    local -n tools=$1
    local program
    for program in "${!tools[@]}"; do
        have "$program" || [[ -x /sbin/$program || -x /usr/sbin/$program ]] || echo "${tools[$program]}"
    done
}

not_installed() {
    local package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
    done
}

ensure_vm_tools() {
    local missing
    mapfile -t missing < <(missing_packages VM_TOOLS)
    install_packages "${missing[@]}"
}

ensure_build_tools() {
    local missing
    mapfile -t missing < <(missing_packages BUILD_TOOLS)
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
    install_packages "${missing[@]}"
}

# The checks of ci/tests that are written in Python need only its standard library.
ensure_python() { have python3 || install_packages python3; }

ensure_peers() {
    local missing
    have dpkg-query || die "there is no dpkg here; install the counterparts of: ${PEER_PACKAGES[*]}"
    mapfile -t missing < <(not_installed "${PEER_PACKAGES[@]}")
    install_packages "${missing[@]}"
    say "test peers: all ${#PEER_PACKAGES[@]} packages installed"
}

virtme_dir() { echo "$LAB_CACHE/virtme-ng-$VIRTME_VERSION"; }

virtme_installed() { [[ -e $(virtme_dir)/ready ]]; }

install_virtme() {
    local dir
    dir=$(virtme_dir)
    ensure_build_tools
    rm -rf "$dir"
    install_virtme_into "$dir" || die "virtme-ng $VIRTME_VERSION could not be installed from PyPI"
    touch "$dir/ready"
}

# Prefers the distribution's python3: its venv module is the package above.
install_virtme_into() {
    local python=python3
    [[ -x /usr/bin/python3 ]] && /usr/bin/python3 -c 'import ensurepip' 2>/dev/null && python=/usr/bin/python3
    run_logged "making a Python environment for virtme-ng" "$python" -m venv "$1" &&
        run_logged "installing virtme-ng $VIRTME_VERSION from PyPI" \
            "$1/bin/pip" install --disable-pip-version-check "virtme-ng==$VIRTME_VERSION"
}
