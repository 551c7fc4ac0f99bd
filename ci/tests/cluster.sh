#!/usr/bin/env bash
# shellcheck disable=SC2016 # other shells expand some strings
# Runs the commands of docs/cluster.md that measure ten hosts, word for word: cluster.sh DEB
#
# The administrator's host and node1 to node10 have network, UTS and mount namespaces of their own,
# and a copy-on-write root file system of this machine, with an sshd. They have no RDMA devices, so
# the tests are those that the document names for this case. Runs as root.
set -euo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../.."
deb=$(realpath "$1")
readonly NODES=10
if [[ ${2:-} != inside ]]; then
    exec unshare --net --mount --uts --pid --fork --mount-proc "$0" "$deb" inside
fi

work=/run/cluster
mount -t tmpfs -o size=100% none /run
mkdir "$work"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"

make_root() { # NAME
    local name=$1 root=$work/$1/root
    mkdir -p "$work/$name"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$work/$name/upper,workdir=$work/$name/work" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs none "$root/run"
    mount -t tmpfs none "$root/tmp"
    mount -t tmpfs -o mode=700 none "$root/root"
    mkdir -p "$root/run/sshd" "$root/root/.ssh"
    {
        echo 127.0.0.1 localhost
        echo 10.76.0.254 admin
        for ((node = 1; node <= NODES; node++)); do echo "10.76.0.$node node$node"; done
    } >"$root/etc/hosts"
    sed -i 's#^root:.*#root:x:0:0:root:/root:/bin/sh#' "$root/etc/passwd"
    cp "$work/key.pub" "$root/root/.ssh/authorized_keys"
    # Programs that a machine of an administrator has, if this machine lacks them.
    [[ -x $root/usr/bin/sudo ]] || printf '#!/bin/sh\nexec "$@"\n' >"$root/usr/local/bin/sudo"
    printf '#!/bin/sh\necho "opened: $1"\n' >"$root/usr/local/bin/xdg-open"
    chmod +x "$root"/usr/local/bin/{sudo,xdg-open} 2>/dev/null || true
}

make_host() { # NAME ADDRESS: a network namespace, connected to the others
    ip netns add "$1"
    ip link add "$1" type veth peer name eth0 netns "$1"
    ip link set "$1" master br0 up
    ip -n "$1" addr add "$2/24" dev eth0
    ip -n "$1" link set eth0 up
    ip -n "$1" link set lo up
}

on() { # NAME COMMAND…: runs a command on a host
    local name=$1
    shift
    nsenter --net="/run/netns/$name" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "$name" \
        chroot "$work/$name/root" "$@"
}

ip link set lo up
ip link add br0 type bridge
ip link set br0 up
for name in admin $(seq -f 'node%g' "$NODES"); do
    number=${name#node}
    make_root "$name"
    make_host "$name" "10.76.0.${number/admin/254}"
done
for ((node = 1; node <= NODES; node++)); do on "node$node" /usr/sbin/sshd -D -o UsePAM=no & done
home=$work/admin/root/root
cp "$work/key" "$home/.ssh/id_ed25519"
printf 'StrictHostKeyChecking accept-new\nLogLevel ERROR\n' >"$home/.ssh/config"
mkdir "$home/cluster"
cp "$deb" "$home/cluster/"

# The first block of code of the section.
commands=$(awk '/^## From nothing/ { on = 1 } on && /^    / { print substr($0, 5); seen = 1; next } seen && /[^ ]/ { exit }' docs/cluster.md)
count=$(wc -l <<<"$commands")
((count == 5)) || { echo "docs/cluster.md has $count commands instead of 5:"; echo "$commands"; exit 1; }
{
    echo cd /root/cluster
    while IFS= read -r command; do
        command=${command/rc_bw rc_lat/tcp_bw tcp_lat}
        printf 'printf "\\n$ %%s\\n" %q\n' "$command"
        # Status 3: a host or a link is slow. All hosts share the processors of this machine.
        printf '%s\ns=$?; [ $s = 0 ] || [ $s = 3 ] || { echo "failed: status $s"; exit 1; }\n' "$command"
    done <<<"$commands"
} >"$home/commands"
on admin env HOME=/root bash /root/commands
python3 - "$home/cluster" "$NODES" <<'EOF'
import json, sys
from pathlib import Path

directory, nodes = Path(sys.argv[1]), int(sys.argv[2])
cells = json.loads((directory / "mesh.json").read_text())["cells"]
failed = [cell for cell in cells if "error" in cell]
assert len(cells) == 2 * nodes * (nodes - 1) and not failed, (len(cells), failed)
assert (directory / "mesh.html").read_text().count('class="detail"') == len(cells)
print(f"{len(cells)} cells of {nodes} hosts: no test failed, and the page has all of them")
EOF
cp "$home/cluster/mesh.html" "$home/cluster/mesh.json" "${CLUSTER_OUTPUT:-/dev/shm}/" 2>/dev/null || true
