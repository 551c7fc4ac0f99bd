# shellcheck shell=bash
# Installs what building the workspace needs: a C linker, the RDMA libraries, and Rust.

readonly BUILD_PACKAGES=(gcc libc6-dev pkg-config libibverbs-dev librdmacm-dev libibumad-dev ibverbs-providers)

# The Rust version whose lints apply, and which is installed if there is none. Newer versions have
# newer lints.
readonly RUST_VERSION=1.95.0

# Prints the oldest Rust that builds the workspace, from Cargo.toml.
msrv() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

version_at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

ensure_build_packages() {
    have apt-get || { info "apt is not available: libibverbs, librdmacm and libibumad with headers must be installed"; return; }
    local missing
    mapfile -t missing < <(not_installed "${BUILD_PACKAGES[@]}")
    install_packages "${missing[@]}"
}

# Provides a Rust that is new enough: the installed one, or one from the distribution's rustup, or
# from rustup's own installer.
ensure_rust() {
    local found
    if [[ -f $HOME/.cargo/env ]]; then
        # shellcheck source=/dev/null # a file of rustup, outside the tree
        . "$HOME/.cargo/env"
    fi
    if have cargo; then
        found=$(cargo --version | cut -d ' ' -f 2)
        version_at_least "$found" "$(msrv)" && return
        info "cargo $found is older than $(msrv): installing a newer one with rustup"
    fi
    if ! have rustup; then
        # Debian 12 has a package entry for rustup, but no package.
        if have apt-get && apt-cache policy rustup | grep -q 'Candidate: [0-9]'; then
            install_packages rustup
        else
            have curl || install_packages curl ca-certificates
            run_logged "installing rustup" install_rustup ||
                die "installing Rust failed: install Rust $(msrv) or newer (https://rustup.rs) and run this again"
            # shellcheck source=/dev/null
            . "$HOME/.cargo/env"
        fi
    fi
    run_logged "installing Rust $RUST_VERSION" rustup toolchain install "$RUST_VERSION" --profile minimal -c rustfmt -c clippy
    rustup default "$RUST_VERSION" >/dev/null 2>&1
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
        "$dir/rustup-init" -y --no-modify-path --profile minimal --default-toolchain "$RUST_VERSION" -c rustfmt -c clippy || status=$?
    rm -rf "$dir"
    return "$status"
}
