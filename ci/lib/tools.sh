# shellcheck shell=bash
# Installs the programs that the lab needs on this machine, with apt where it exists.

readonly VIRTME_VERSION=1.42
# shellcheck disable=SC2034 # used by ci/test
readonly KUBERNETES_VALIDATE_VERSION=1.37.0
# shellcheck disable=SC2034 # used by ci/test
readonly CARGO_MUTANTS_VERSION=27.1.0
# shellcheck disable=SC2034 # used by ci/test
readonly MDBOOK_VERSION=0.5.4
# shellcheck disable=SC2034 # used by ci/tests/public-api.sh, for the JSON of Rust 1.95
readonly CARGO_PUBLIC_API_VERSION=0.52.0
# shellcheck disable=SC2034 # used by ci/test
readonly CHECK_JSONSCHEMA_VERSION=0.39.0
# shellcheck disable=SC2034 # used by ci/release
readonly CARGO_SEMVER_CHECKS_VERSION=0.51.0
# shellcheck disable=SC2034 # used by ci/dist
readonly CARGO_DEB_VERSION=3.8.0 CARGO_GENERATE_RPM_VERSION=0.21.1

# shellcheck disable=SC2034 # used by name, in missing_packages
# Program → Debian package, for running a virtual machine from a complete cache.
readonly -A VM_TOOLS=(
    [qemu-system-x86_64]=qemu-system-x86
    [busybox]=busybox-static
    [modprobe]=kmod
    [ip]=iproute2
    [file]=file
)
# shellcheck disable=SC2034
# Additional programs for filling the cache.
readonly -A BUILD_TOOLS=(
    [gcc]=gcc
    [make]=make
    [strings]=binutils
    [xz]=xz-utils
    [zstd]=zstd
    [python3]=python3
)

# The programs that ours are compared with, and the packages for building with their libraries.
readonly PEER_PACKAGES=(
    rdma-core libibverbs1 ibverbs-providers librdmacm1 libibumad3
    libibverbs-dev librdmacm-dev libibumad-dev pkg-config
    ibverbs-utils rdmacm-utils infiniband-diags perftest qperf iperf3
    opensm ibsim-utils libumad2sim0 iproute2 kmod procps fio
    nftables iptables ipset firewalld dbus
    iputils-ping openssh-server slurmd slurmctld slurm-client munge ansible-core prometheus
)

apt_quietly() {
    sudo_if_needed env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=600 "$@"
}

# Succeeds if apt knows at least one package (new images have empty lists).
apt_lists_present() { apt-cache show iproute2 >/dev/null 2>&1; }

refresh_apt_lists() { run_logged "apt-get update" apt_quietly update; }

install_packages() {
    (($# > 0)) || return 0
    have apt-get || die "apt-get is not available; install these packages (Debian's names): $*"
    apt_lists_present || refresh_apt_lists
    run_logged "installing with apt: $*" apt_quietly install --no-install-recommends "$@" && return
    refresh_apt_lists
    run_logged "installing with apt, second attempt: $*" apt_quietly install --no-install-recommends "$@" ||
        die "installing with apt failed: $*"
}

# Prints the packages of the missing programs of an associative array.
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
    have dpkg-query || die "dpkg is not available; install the equivalents of: ${PEER_PACKAGES[*]}"
    mapfile -t missing < <(not_installed "${PEER_PACKAGES[@]}")
    # kubectl has packages of several names.
    have kubectl || missing+=(kubernetes-client)
    install_packages "${missing[@]}"
    info "test peers: all ${#PEER_PACKAGES[@]} packages are installed"
}

virtme_dir() { echo "$LAB_CACHE/virtme-ng-$VIRTME_VERSION"; }

virtme_installed() { [[ -e $(virtme_dir)/ready ]]; }

install_virtme() {
    ensure_build_tools
    install_from_pypi virtme-ng "$VIRTME_VERSION"
}

# Installs a program of PyPI into an environment of its own in the cache: install_from_pypi NAME
# VERSION. The distribution's python3 is preferred, whose venv module is installed if necessary.
install_from_pypi() {
    local dir=$LAB_CACHE/$1-$2 python=python3
    rm -rf "$dir"
    [[ -x /usr/bin/python3 ]] && /usr/bin/python3 -c 'import ensurepip' 2>/dev/null && python=/usr/bin/python3
    if ! run_logged "creating a Python environment for $1" "$python" -m venv "$dir" ||
        ! run_logged "installing $1 $2 from PyPI" "$dir/bin/pip" install --disable-pip-version-check "$1==$2"; then
        die "installing $1 $2 from PyPI failed"
    fi
    touch "$dir/ready"
}

# Installs a program of PyPI, unless the cache has it: ensure_from_pypi NAME VERSION
ensure_from_pypi() {
    [[ ! -e $LAB_CACHE/$1-$2/ready ]] || return 0
    python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3 python3-venv
    with_cache_lock install_from_pypi "$@"
}

# Prints the path of a program installed by ensure_cargo_tool: cargo_tool NAME VERSION
cargo_tool() { echo "$LAB_CACHE/$1-$2/bin/$1"; }

# Builds a program of crates.io in the cache: ensure_cargo_tool NAME VERSION [OPTION…]. Optimising
# it would take longer than all its runs.
ensure_cargo_tool() {
    local name=$1 version=$2 build
    shift 2
    [[ ! -x $(cargo_tool "$name" "$version") ]] || return 0
    build=$LAB_CACHE/build-$name
    run_logged "building $name $version" cargo install --locked --version "$version" "$name" "$@" \
        --debug --config profile.dev.debug=false --root "$LAB_CACHE/$name-$version" --target-dir "$build" ||
        die "building $name $version failed"
    rm -rf "$build"
}
