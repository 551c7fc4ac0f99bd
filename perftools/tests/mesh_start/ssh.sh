# Starts sshd, runs a mesh over two addresses of this host, and kills a coordinator.
# Arguments: the path of rperf.
set -eu
rperf=$1
. "$(dirname "$0")/await_servers.sh"
mount -t tmpfs none /run
mkdir -p /run/sshd /run/mesh
cd /run/mesh
# The start of a login shell, which can be slow, is no part of the test.
sed 's#^root:.*#root:x:0:0:root:/:/bin/sh#' /etc/passwd >passwd
mount --bind passwd /etc/passwd
ip link set lo up
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f user
cat >sshd_config <<CONFIG
Port 2222
ListenAddress 127.0.0.2
ListenAddress 127.0.0.3
HostKey /run/mesh/host
AuthorizedKeysFile /run/mesh/user.pub
StrictModes no
UsePAM no
PidFile none
CONFIG
/usr/sbin/sshd -f sshd_config -D -e 2>sshd.log &
sleep 1
ssh="ssh -p 2222 -i /run/mesh/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
ssh="$ssh -o BatchMode=yes -o LogLevel=ERROR"
servers() { ps ax | grep -c '[r]perf --mesh --supervised' || true; }
mesh() {
    "$rperf" mesh 127.0.0.2:7002,127.0.0.3:7003 --start ssh --launcher "$ssh" \
        --remote-rperf "$rperf" --slow-latency 1000 "$@"
}
mesh --json -n 100 tcp_lat
echo "servers after the run: $(servers)"
mesh -t 60 tcp_bw >/dev/null 2>&1 &
await_servers 2
echo "servers during the run: $(servers)"
pkill -KILL --parent $$ -x rperf || kill -KILL "$(pgrep -f '^[^ ]*rperf mesh')"
await_servers 0
echo "servers after the death of the coordinator: $(servers)"
