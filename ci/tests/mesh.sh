#!/usr/bin/env bash
# Tests `rperf mesh` over four lab hosts, with one start of the lab: mesh.sh RPERF
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
rperf=$(realpath "$1")
directory=$(mktemp -d "${TMPDIR:-/tmp}/mesh-test.XXXXXX")
trap 'rm -rf "$directory"' EXIT

ssh-keygen -q -t ed25519 -N '' -f "$directory/host"
ssh-keygen -q -t ed25519 -N '' -f "$directory/user"
cat >"$directory/sshd_config" <<EOF
Port 2222
HostKey $directory/host
AuthorizedKeysFile $directory/user.pub
PermitRootLogin yes
StrictModes no
UsePAM no
UseDNS no
PidFile none
EOF
cat >"$directory/ssh_config" <<EOF
Port 2222
User root
IdentityFile $directory/user
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
BatchMode yes
ControlMaster auto
ControlPath /run/ssh-%h
EOF
status=0
ci/lab run --hosts 4 --timeout 900 -- ci/guest/mesh host "$directory" "$rperf" -- \
    ci/guest/mesh coordinator "$directory" "$rperf" || status=$?
python3 ci/tests/mesh.py "$directory" || status=1
exit "$status"
