# shellcheck shell=bash
# Downloads the source of rdma-core, and builds a newer version than the installed one in the cache.

# The oldest version with all functions that the crates bind.
readonly NEWER_RDMA_CORE_VERSION=65
readonly NEWER_RDMA_CORE=$LAB_CACHE/rdma-core-newer

# Downloads and unpacks the source of rdma-core in a suite of Debian, whose lists and archive stay
# in a directory: download_rdma_core SUITE WORK SOURCE. The suite is not enabled on the machine. apt
# checks its signature, and the archive by the checksums of the suite.
download_rdma_core() {
    local suite=$1 work=$2 source=$3
    mkdir -p "$work/lists/partial"
    ensure_debian_keyring
    printf '%s\n' 'Types: deb-src' "URIs: $(debian_mirror)" "Suites: $suite" 'Components: main' \
        "Signed-By: $DEBIAN_KEYRING" >"$work/source.sources"
    local options=(-q -o Dir::Etc::SourceList="$work/source.sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    rm -f "$work"/rdma-core_*.orig.tar.*
    (cd "$work" && apt-get "${options[@]}" source --download-only --tar-only rdma-core)
    rm -rf "$source.new"
    mkdir -p "$source.new"
    tar -xf "$work"/rdma-core_*.orig.tar.* --strip-components=1 -C "$source.new"
    mv "$source.new" "$source"
}

# Builds rdma-core of Debian's unstable suite in the cache, or that of RDMA_CORE_NEWER_SOURCE. Its
# libraries are in $NEWER_RDMA_CORE/build/lib. They are not installed.
ensure_newer_rdma_core() {
    [[ -e $NEWER_RDMA_CORE/ready ]] || with_cache_lock build_newer_rdma_core
    info "rdma-core $(rdma_core_version "$NEWER_RDMA_CORE/source") in the cache"
}

build_newer_rdma_core() {
    local version source=$NEWER_RDMA_CORE/source
    ensure_packages rdma-core
    rm -rf "$NEWER_RDMA_CORE"
    mkdir -p "$NEWER_RDMA_CORE"
    if [[ -n ${RDMA_CORE_NEWER_SOURCE:-} ]]; then
        cp -r "$RDMA_CORE_NEWER_SOURCE" "$source"
    else
        run_logged "downloading rdma-core of Debian unstable" download_rdma_core sid "$NEWER_RDMA_CORE/apt" "$source" ||
            die "downloading rdma-core of Debian unstable failed; RDMA_CORE_NEWER_SOURCE can name its source"
    fi
    version=$(rdma_core_version "$source")
    version_at_least "$version" "$NEWER_RDMA_CORE_VERSION" || die "rdma-core $version is older than $NEWER_RDMA_CORE_VERSION"
    run_logged "building rdma-core $version" compile_rdma_core "$source" "$NEWER_RDMA_CORE/build" ||
        die "building rdma-core $version failed"
    rm -rf "$NEWER_RDMA_CORE/apt"
    touch "$NEWER_RDMA_CORE/ready"
}

rdma_core_version() { sed -n 's/^set(PACKAGE_VERSION "\(.*\)")$/\1/p' "$1/CMakeLists.txt"; }

compile_rdma_core() { # SOURCE BUILD
    cmake -G Ninja -S "$1" -B "$2" -DIN_PLACE=1 -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 && ninja -C "$2"
}
