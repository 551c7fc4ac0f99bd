# shellcheck shell=bash
# Installs what building the workspace needs: a C linker, the RDMA libraries, and Rust.

readonly BUILD_PACKAGES=(gcc libc6-dev pkg-config libibverbs-dev librdmacm-dev libibumad-dev ibverbs-providers)

# Prints the Rust version for work on this project, from rust-toolchain.toml.
rust_version() { sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml; }

# Prints the oldest Rust that builds the workspace, from Cargo.toml.
msrv() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

# Prints its components, with commas between them.
rust_components() { sed -n '/^components = /s/.*\[\(.*\)\].*/\1/p' rust-toolchain.toml | tr -d '" '; }

version_at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | sed -n 1p) == "$2" ]]; }

ensure_build_packages() {
    have apt-get || { info "apt is not available: libibverbs, librdmacm and libibumad with headers must be installed"; return; }
    local missing
    mapfile -t missing < <(not_installed "${BUILD_PACKAGES[@]}")
    install_packages "${missing[@]}"
}

# Provides Rust. With rustup this is the version of rust-toolchain.toml, or the one that
# RUSTUP_TOOLCHAIN names. A cargo that did not come from rustup is used if it is new enough. If
# there is neither, installs the distribution's rustup, or rustup with its own installer.
ensure_rust() {
    local version found
    version=$(rust_version)
    if [[ -f $HOME/.cargo/env ]]; then
        # shellcheck source=/dev/null # a file of rustup, outside the tree
        . "$HOME/.cargo/env"
    fi
    if ! have rustup && have cargo; then
        found=$(cargo --version | cut -d ' ' -f 2)
        if version_at_least "$found" "$(msrv)"; then
            [[ $found == "$version" ]] ||
                info "using cargo $found; lints and compile-fail tests expect Rust $version, which rustup installs (https://rustup.rs)"
            return
        fi
        info "cargo $found is older than $(msrv): installing a newer one with rustup"
    fi
    have rustup || ensure_rustup
    [[ -z ${RUSTUP_TOOLCHAIN:-} ]] || return 0
    has_toolchain "$version" || run_logged "installing Rust $version" install_toolchain "$version" ||
        die "installing Rust $version failed" "to use another Rust, set RUSTUP_TOOLCHAIN to one of \`rustup toolchain list\`, $(msrv) or newer"
    # Outside the tree, rust-toolchain.toml does not apply.
    rustup default >/dev/null 2>&1 || rustup default "$version" >/dev/null 2>&1
}

# Prints the version of the crates and packages.
workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# Builds the tools with a profile, without the names of the builder's directories in them:
# build_programs PROFILE OPTION…
build_programs() {
    local profile=$1 sysroot target folding=
    shift
    # The linker of Rust merges equal functions, which generic code has many of.
    [[ $(uname -m) != x86_64 ]] || folding='-C link-arg=-Wl,--icf=all'
    sysroot=$(rustc --print sysroot)
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    RUSTFLAGS="$folding --remap-path-prefix=$PWD=/build --remap-path-prefix=$target=/build/target \
        --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$sysroot=/rust" \
        cargo build --profile "$profile" --locked -p perftools --bins "$@"
}

install_toolchain() { rustup toolchain install "$1" --no-self-update --profile minimal -c "$(rust_components)"; }

has_toolchain() {
    local installed component
    installed=$(rustup component list --installed --toolchain "$1" 2>/dev/null) || return
    for component in $(rust_components | tr , ' '); do
        [[ $installed == *"$component"* ]] || return
    done
}

ensure_rustup() {
    # Debian 12 has a package entry for rustup, but no package.
    if have apt-get && apt-cache policy rustup | grep 'Candidate: [0-9]' >/dev/null; then
        install_packages rustup
        return
    fi
    have curl || install_packages curl ca-certificates
    run_logged "installing rustup" install_rustup ||
        die "installing Rust failed: install Rust $(msrv) or newer (https://rustup.rs) and run this again"
    # shellcheck source=/dev/null
    . "$HOME/.cargo/env"
}

# Runs rustup's installer from its official origin after checking its checksum. It does not change
# the shell's startup files.
install_rustup() {
    local from dir status=0
    from=https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu
    dir=$(mktemp -d)
    curl --proto '=https' --tlsv1.2 -sSf --retry 3 -o "$dir/rustup-init" "$from/rustup-init" &&
        curl --proto '=https' --tlsv1.2 -sSf --retry 3 -o "$dir/sum" "$from/rustup-init.sha256" &&
        (cd "$dir" && sha256sum --quiet -c <(cut -d ' ' -f 1 sum | sed 's/$/  rustup-init/')) &&
        chmod +x "$dir/rustup-init" &&
        "$dir/rustup-init" -y --no-modify-path --profile minimal --default-toolchain "$(rust_version)" -c "$(rust_components)" || status=$?
    rm -rf "$dir"
    return "$status"
}
