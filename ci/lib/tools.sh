# shellcheck shell=bash
# Installs the programs that the lab needs on this machine, with apt where it exists.

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

# What each task needs beside a minimal Debian: PROGRAM:PACKAGE, or a package that has no program
# with a name of its own. Everything that ci/ installs with apt is in this table, so that a command
# installs all that it needs at once, before it starts.
readonly -A TASK_PACKAGES=(
    # Building the workspace.
    [build]='gcc libc6-dev pkg-config libibverbs-dev librdmacm-dev libibumad-dev ibverbs-providers'
    [rustup]='curl ca-certificates'
    # Running a virtual machine from a complete cache.
    [vm]='qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod ip:iproute2 python3:python3'
    # Filling the cache: siw for the kernel of Debian.
    [cache]='gcc:gcc make:make strings:binutils xz:xz-utils zstd:zstd'
    # Building a kernel.
    [kernel]='flex:flex bison:bison bc:bc libelf-dev'
    # The programs that ours are compared with.
    [peers]='rdma-core libibverbs1 ibverbs-providers librdmacm1 libibumad3
        ibverbs-utils rdmacm-utils infiniband-diags perftest qperf iperf3
        opensm ibsim-utils libumad2sim0 iproute2 kmod procps fio
        nftables iptables ipset firewalld dbus
        iputils-ping openssh-server slurmd slurmctld slurm-client munge prometheus'
    # The checks of ci/tests that are written in Python need only its standard library.
    [checks]='git:git python3:python3'
    [pypi]='python3:python3 python3-venv ca-certificates'
    [scripts]='shellcheck:shellcheck git:git'
    [instructions]='valgrind:valgrind'
    [deb]='dpkg-dev xz-utils'
    [rpm]='/usr/lib/rpm/find-requires:rpm'
    [distribution]='rpm binutils dpkg-dev bash-completion man-db systemd git:git'
    [fuzz]='g++:g++'
    [gpu]='clang-14:clang-14'
    [coexist]='cmake:cmake make:make libclang-dev'
    [rdma-core]='gcc libc6-dev cmake ninja-build pkg-config libnl-3-dev libnl-route-3-dev python3'
    [fresh]='debootstrap mmdebstrap'
    [screenshot]='chromium pngquant fonts-dejavu-core'
)

# Installs what tasks of the table lack: ensure_packages TASK…
ensure_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    install_packages "${missing[@]}"
}

# Prints the packages that tasks of the table lack. Without dpkg, which knows them, the packages
# without a program count as installed.
missing_packages() {
    local task entry
    for task in "$@"; do
        for entry in ${TASK_PACKAGES[$task]}; do
            if [[ $entry == *:* ]]; then
                have "${entry%%:*}" || echo "${entry#*:}"
            elif have dpkg-query && [[ $(dpkg-query -W -f '${db:Status-Status}' "$entry" 2>/dev/null) != installed ]]; then
                echo "$entry"
            fi
        done
    done | LC_ALL=C sort -u
}

# Seconds to wait for another apt.
readonly APT_LOCK_SECONDS=600

# Runs apt-get without questions. Its messages are in English, and all users can read the files
# that packages create in their scripts, whatever the settings of the caller are.
apt_quietly() {
    (
        umask 022
        sudo_if_needed env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -q -y \
            -o DPkg::Lock::Timeout="$APT_LOCK_SECONDS" -o APT::Update::Error-Mode=any "$@"
    )
}

# The output of apt-cache is read here, so it must not be translated.
apt-cache() { LC_ALL=C.UTF-8 command apt-cache "$@"; }

# Succeeds if apt knows at least one package (new images have empty lists).
apt_lists_present() { apt-cache show iproute2 >/dev/null 2>&1; }

refresh_apt_lists() {
    require_root "reading apt's lists" "apt-get update"
    run_logged "apt-get update" update_apt_lists
}

# The option of apt for its locks does not apply to that of the lists.
update_apt_lists() {
    local until=$((SECONDS + APT_LOCK_SECONDS)) output
    until output=$(apt_quietly update 2>&1); do
        printf '%s\n' "$output"
        [[ $output == *'Could not get lock'* ]] && ((SECONDS < until)) || return 1
        sleep 1
    done
    printf '%s\n' "$output"
}

# Fails unless packages can be installed: require_packages PACKAGE…
require_packages() {
    (($# > 0)) || return 0
    have apt-get || die "apt-get is not available; install these packages (Debian's names): $*"
    require_root "installing packages" "apt-get install --no-install-recommends $(printf '%s\n' "$@" | sort -u | xargs)"
}

# Installs packages: install_packages PACKAGE… The second attempt is for lists that are older than
# the mirror, and for a machine on which another installation was interrupted. Lists of other
# sources that cannot be read are no reason to stop.
install_packages() {
    (($# > 0)) || return 0
    # shellcheck disable=SC2046 # names of packages
    set -- $(printf '%s\n' "$@" | sort -u)
    require_packages "$@"
    if apt_lists_present && run_logged "installing with apt: $*" apt_quietly install --no-install-recommends "$@"; then
        return
    fi
    refresh_apt_lists || true
    sudo_if_needed env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null 2>&1 </dev/null || true
    run_logged "installing with apt: $*" apt_quietly install --no-install-recommends "$@" ||
        die "apt could not install packages: see above" \
            "help: check the network, the sources of apt and the proxy${http_proxy:+ ($http_proxy)}, or install them: apt-get install $*"
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
    ensure_packages pypi
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
