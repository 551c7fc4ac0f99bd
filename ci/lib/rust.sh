# shellcheck shell=bash
# Provides Rust, and builds the programs.

# Prints the Rust version for work on this project, from rust-toolchain.toml.
rust_version() { sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml; }

# Prints the oldest Rust that builds the workspace, from Cargo.toml.
msrv() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

# Prints its components, with commas between them.
rust_components() { sed -n '/^components = /s/.*\[\(.*\)\].*/\1/p' rust-toolchain.toml | tr -d '" '; }

version_at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | sed -n 1p) == "$2" ]]; }

needs_rustup() { [[ ! -x ${CARGO_HOME:-$HOME/.cargo}/bin/rustup ]] && ! have rustup && ! have cargo; }

# Provides Rust. With rustup this is the version of rust-toolchain.toml, or the one that
# RUSTUP_TOOLCHAIN names. A cargo that did not come from rustup is used if it is new enough. If
# there is neither, installs the distribution's rustup, or rustup with its own installer.
ensure_rust() {
    local version found
    version=$(rust_version)
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
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
    has_toolchain "$version" || run_logged "installing Rust $version" install_toolchain "$version" "$(rust_components)" ||
        die "installing Rust $version failed" "to use another Rust, set RUSTUP_TOOLCHAIN to one of \`rustup toolchain list\`, $(msrv) or newer"
    # Outside the tree, rust-toolchain.toml does not apply.
    rustup default >/dev/null 2>&1 || rustup default "$version" >/dev/null 2>&1
}

# Prints the version of the crates and packages.
workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# Builds the tools with a profile, without the names of the builder's directories in them:
# build_programs PROFILE OPTION…
build_programs() {
    local profile=$1 sysroot target flags=()
    shift
    # The linker of Rust merges equal functions, which generic code has many of.
    [[ $(uname -m) != x86_64 ]] || flags=(-C 'link-arg=-Wl,--icf=all')
    sysroot=$(rustc --print sysroot)
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    flags+=(--remap-path-prefix="$PWD=/build" --remap-path-prefix="$target=/build/target"
        --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo" --remap-path-prefix="$sysroot=/rust")
    # Cargo separates them by a character that paths do not have.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        cargo build --profile "$profile" --locked -p perftools --bins "$@"
}

# Installs a version of Rust: install_toolchain VERSION [COMPONENTS] (with commas between them).
# A rustup that outlives a killed script must not meet another one: they damage the tool chain.
install_toolchain() {
    mkdir -p "$LAB_CACHE"
    flock "$LAB_CACHE/.rustup" \
        rustup toolchain install "$1" --no-self-update --profile minimal ${2:+-c "$2"}
}

# Installs the newest nightly Rust: ensure_nightly [COMPONENTS].
ensure_nightly() {
    install_toolchain nightly "$@" >/dev/null 2>&1 ||
        die "installing nightly Rust failed: rustup toolchain install nightly${1:+ -c $1}"
}

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
    ensure_packages rustup
    run_logged "installing rustup and Rust $(rust_version)" install_rustup ||
        die "installing Rust failed: see above" "help: check the network, or install Rust $(msrv) or newer (https://rustup.rs), and run this again"
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
        flock "$LAB_CACHE/.rustup" "$dir/rustup-init" -y --no-modify-path --profile minimal --default-toolchain "$(rust_version)" -c "$(rust_components)" || status=$?
    rm -rf "$dir"
    return "$status"
}
