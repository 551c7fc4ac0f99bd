#!/usr/bin/env bash
# Tests the packages of ci/dist: their contents, and the tools after the installation of the Debian
# package, which is removed again.
#
# usage: ci/tests/distribution.sh DIR   (the directory with both packages)
set -euo pipefail
dir=$(realpath "${1:?usage: ci/tests/distribution.sh DIR}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. ci/lib/common.sh
. ci/lib/tools.sh
readonly NAME=rdma-perftools
readonly TOOLS=(rperf ribping ribinfo)
# RHEL 9 has this version of glibc, and the guides are written for it.
readonly MAX_GLIBC=2.34
readonly UNITS=(rperf.service rperf-monitor.service ribinfo-export.service)
deb=$(realpath "$dir/$NAME"_*.deb)
rpm=$(realpath "$dir/$NAME"-*.rpm)
work=$(mktemp -d)
failures=0

expect() { # NAME COMMAND…: reports success if the command succeeds
    local name=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        echo "ok    $name"
    else
        echo "FAIL  $name"
        sed 's/^/      /' "$work/output"
        failures=$((failures + 1))
    fi
}

# Succeeds if each line of the standard input is in the file, and prints the others.
contains_lines() {
    local missing
    missing=$(LC_ALL=C sort -u | LC_ALL=C comm -23 - <(LC_ALL=C sort -u "$1"))
    [[ -z $missing ]] || { printf 'missing: %s\n' "$missing"; return 1; }
}

# Prints the files that both packages must contain.
common_files() {
    local tool
    for tool in "${TOOLS[@]}"; do
        printf '%s\n' "/usr/bin/$tool" "/usr/share/man/man1/$tool.1.gz" \
            "/usr/share/bash-completion/completions/$tool" "/usr/share/fish/vendor_completions.d/$tool.fish"
    done
    printf '%s\n' "${UNITS[@]/#//usr/lib/systemd/system/}" /usr/share/man/man1/ribinfo-check.1.gz \
        "/usr/share/doc/$NAME"/{formats.md,methodology.md,schema/rperf-1.json,prometheus/rules.yml}
}

# A file that is writable for others, or that does not belong to root, is a way to become root.
only_root_can_write() { awk 'substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w" || $2 !~ "^(root/root|0/0)$" { print; bad = 1 } END { exit bad }' "$1"; }

# Prints the newest version of glibc that a symbol of the programs needs.
newest_glibc() {
    objdump -T "$@" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | sed -n '$s/GLIBC_//p'
}

# Succeeds if the programs run with MAX_GLIBC, and prints the symbols that are newer.
runs_on_old_glibc() {
    local newest
    newest=$(newest_glibc "$@")
    echo "glibc $newest"
    [[ $(printf '%s\n' "$newest" "$MAX_GLIBC" | sort -V | sed -n '$p') == "$MAX_GLIBC" ]] ||
        { objdump -T "$@" | grep "GLIBC_$newest" && return 1; }
}

# Succeeds if the programs do not name the builder's home or the directory of the build.
names_no_directory() {
    local file path found=0
    for file in "$@"; do
        for path in "$HOME/" "$PWD/"; do
            ! strings "$file" | grep -F "$path" || found=1
        done
    done
    return "$found"
}

# Succeeds if the notices name each crate of the list.
notices_are_complete() { # NOTICES LIST
    local crate missing=0
    while read -r crate; do
        grep -qF "$crate" "$1" || { echo "missing: $crate"; missing=1; }
    done < <(sed -n 's/^[^:]*: \([^ ]*\) v\([^ ]*\)$/\1 \2/p' "$2" | grep -vE '^(perftools|rdma-|rdmacm |ibumad |gpu-memory )')
    return "$missing"
}

# Succeeds if each file is a shell script for the systemd units.
valid_scripts() {
    local script
    for script in "$@"; do
        echo "$script"
        sh -n "$script" || return
        grep -E 'systemctl|deb-systemd' "$script" || return
    done
}

test_deb_contents() {
    dpkg-deb -c "$deb" >"$work/deb-list"
    awk '{ sub(/^\./, "", $6); print $6 }' "$work/deb-list" >"$work/deb-files"
    dpkg-deb -e "$deb" "$work/control"
    expect "the .deb contains the tools, their pages and completions" contains_lines "$work/deb-files" < <(
        common_files
        printf '/usr/share/zsh/vendor-completions/_%s\n' "${TOOLS[@]}"
        printf '%s\n' "/usr/share/doc/$NAME"/{copyright,changelog.gz,changelog.Debian.gz,LICENSE.dependencies,THIRD-PARTY-NOTICES}
    )
    expect "only root can write the files of the .deb" only_root_can_write "$work/deb-list"
    expect "the .deb requires the RDMA libraries" contains_lines <(
        dpkg-deb -f "$deb" Depends | tr ',' '\n' | awk '{ print $1 }'
    ) < <(printf '%s\n' libc6 libibverbs1 librdmacm1 libibumad3)
    expect "the .deb recommends the providers" contains_lines <(
        dpkg-deb -f "$deb" Recommends | tr ',' '\n' | awk '{ print $1 }'
    ) < <(echo ibverbs-providers)
    expect "the maintainer scripts are valid" valid_scripts "$work/control"/{postinst,prerm,postrm}
    mkdir "$work/deb"
    dpkg-deb -x "$deb" "$work/deb"
    expect "the programs of the .deb run with glibc $MAX_GLIBC" runs_on_old_glibc "${TOOLS[@]/#/$work/deb/usr/bin/}"
    expect "the programs do not name the directories of the build" names_no_directory "${TOOLS[@]/#/$work/deb/usr/bin/}"
    expect "the notices name all crates" notices_are_complete \
        "$work/deb/usr/share/doc/$NAME"/{THIRD-PARTY-NOTICES,LICENSE.dependencies}
    expect "the changelog is in Debian's format" test "$(
        dpkg-deb --fsys-tarfile "$deb" | tar -xO "./usr/share/doc/$NAME/changelog.Debian.gz" | gzip -d |
            dpkg-parsechangelog -l- -S Version
    )" = "$(dpkg-deb -f "$deb" Version)"
}

test_rpm_contents() {
    local script
    expect "the checksums of the .rpm are correct" rpm -K --nosignature "$rpm"
    rpm -qpl "$rpm" >"$work/rpm-files"
    rpm -qp --qf '[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]' "$rpm" >"$work/rpm-list"
    expect "the .rpm contains the tools, their pages and completions" contains_lines "$work/rpm-files" < <(
        common_files
        printf '/usr/share/zsh/site-functions/_%s\n' "${TOOLS[@]}"
        printf '%s\n' "/usr/share/licenses/$NAME"/{LICENSE-MIT,LICENSE-APACHE,LICENSE.dependencies,THIRD-PARTY-NOTICES}
    )
    expect "only root can write the files of the .rpm" only_root_can_write "$work/rpm-list"
    expect "the .rpm requires the RDMA libraries" contains_lines <(rpm -qp --requires "$rpm") < <(
        printf '%s()(64bit)\n' libc.so.6 libibverbs.so.1 librdmacm.so.1 libibumad.so.3
    )
    expect "the .rpm recommends the providers" contains_lines <(rpm -qp --recommends "$rpm") < <(echo libibverbs)
    for script in POSTIN PREUN POSTUN; do
        rpm -qp --qf "%{$script}\n" "$rpm" >"$work/$script"
    done
    expect "the scriptlets are valid" valid_scripts "$work"/{POSTIN,PREUN,POSTUN}
    # Debian's rpm has no database of installed packages, so only the files are installed.
    expect "the .rpm requires no newer glibc than $MAX_GLIBC" requires_old_glibc
    expect "rpm unpacks the .rpm" rpm --root "$work/root" --dbpath /var/lib/rpm -i --nodeps --noscripts "$rpm"
    expect "rperf of the .rpm runs" "$work/root/usr/bin/rperf" --version
}

# Succeeds if the RPM requires no symbol of a newer glibc than MAX_GLIBC.
requires_old_glibc() {
    local newest
    newest=$(rpm -qp --requires "$rpm" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | sed -n '$s/GLIBC_//p')
    echo "glibc $newest"
    [[ $(printf '%s\n' "$newest" "$MAX_GLIBC" | sort -V | sed -n '$p') == "$MAX_GLIBC" ]]
}

# Runs a TCP test against a server, both from the installed package.
measure_tcp() {
    local server status=0
    rperf --port "$1" >"$work/server" 2>&1 &
    server=$!
    timeout 30 bash -c "until (: </dev/tcp/127.0.0.1/$1) 2>/dev/null; do sleep 0.1; done" || status=1
    timeout 30 rperf --port "$1" --time 300ms 127.0.0.1 tcp_bw tcp_lat || status=1
    kill "$server"
    wait "$server" || true
    ((status == 0)) || cat "$work/server"
    return "$status"
}

# bash-completion loads the file by the name of the command, at the first completion.
completion_loads() {
    bash -c 'source /usr/share/bash-completion/bash_completion; _completion_loader "$1"; complete -p "$1"' -- "$1" | grep " -F _$1 " >/dev/null
}

remove_package() {
    status=$?
    trap - EXIT
    dpkg-query -W "$NAME" >/dev/null 2>&1 && apt_quietly purge "$NAME" >"$work/purge" 2>&1
    rm -rf "$work"
    exit "$status"
}

test_installation() {
    local tool unit path threshold
    [[ -z $(dpkg-query -W -f '${db:Status-Abbrev}' "$NAME" 2>/dev/null) ]] ||
        die "$NAME is already installed, and this test removes it; remove it first: apt-get purge $NAME"
    expect "apt installs the .deb with its dependencies" apt_quietly install --no-install-recommends "$deb"
    dpkg -L "$NAME" >"$work/installed"
    for tool in "${TOOLS[@]}"; do
        expect "$tool is installed and prints its help" "/usr/bin/$tool" --help
        expect "the completion of $tool loads in bash" completion_loads "$tool"
        # Minimal images of Debian do not unpack manual pages.
        if ! grep -qs '^path-exclude.*/man/' /etc/dpkg/dpkg.cfg.d/*; then
            expect "the manual page of $tool is found" man -w "$tool"
        fi
    done
    expect "rperf prints its version" test "$(/usr/bin/rperf --version)" = "rperf $(dpkg-deb -f "$deb" Version | sed 's/-[^-]*$//')"
    expect "rperf measures TCP on the loopback interface" measure_tcp 19799
    for unit in "${UNITS[@]}"; do
        path=/usr/lib/systemd/system/$unit
        # ribinfo-export runs as root, because device nodes of subnet management belong to root.
        [[ $unit == ribinfo-export* ]] && threshold=21 || threshold=19
        expect "systemd accepts $unit" systemd-analyze verify "$path"
        expect "systemd rates the exposure of $unit at most ${threshold/%?/.${threshold: -1}}" \
            systemd-analyze security --offline=yes --no-pager --threshold="$threshold" "$path"
        expect "$unit is not enabled" test "$(systemctl --root=/ is-enabled "$unit")" = disabled
    done
    expect "the units start, restart and stop under systemd" ci/tests/systemd-units.sh
    expect "apt removes the package" apt_quietly purge "$NAME"
    expect "no file is left" none_exists "$work/installed"
}

# Directories can belong to other packages.
none_exists() {
    local file found=0
    while read -r file; do
        [[ -d $file || ! -e $file ]] || { echo "$file"; found=1; }
    done <"$1"
    return "$found"
}

main() {
    ensure_packages distribution
    trap remove_package EXIT
    test_deb_contents
    test_rpm_contents
    test_installation
    printf 'distribution: %d failed\n' "$failures"
    ((failures == 0))
}

main
