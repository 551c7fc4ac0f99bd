# Starts slurmctld, and slurmd on four nodes with network and UTS namespaces of their own. Runs a
# mesh in a job, and kills a coordinator. Arguments: the path of rperf.
set -eu
rperf=$1
. "$(dirname "$0")/await_servers.sh"
mount -t tmpfs none /run
mkdir -p /run/mesh/state /run/munge
chmod 755 /run/mesh /run/munge
cd /run/mesh
hostname ctl
ip link set lo up
ip link add br0 type bridge
ip addr add 10.78.0.254/24 dev br0
ip link set br0 up
{
    cat /etc/hosts
    echo 10.78.0.254 ctl
    for i in 1 2 3 4; do echo "10.78.0.$i node$i"; done
} >hosts
mount --bind hosts /etc/hosts
head -c 1024 /dev/urandom >munge.key
chmod 400 munge.key
munged --force --key-file=/run/mesh/munge.key --socket=/run/munge/munge.socket.2 \
    --pid-file=/run/mesh/munge.pid --log-file=/run/mesh/munge.log --seed-file=/run/mesh/munge.seed
cat >slurm.conf <<CONFIG
ClusterName=mesh
SlurmctldHost=ctl(10.78.0.254)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
StateSaveLocation=/run/mesh/state
SlurmdSpoolDir=/run/mesh/spool.%n
SlurmctldPidFile=/run/mesh/ctld.pid
SlurmdPidFile=/run/mesh/slurmd.%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName=node[1-4] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONFIG
# The processes of jobs are tracked without control groups.
echo CgroupPlugin=cgroup/v1 >cgroup.conf
export SLURM_CONF=/run/mesh/slurm.conf
slurmctld -D >ctld.out 2>&1 &
for i in 1 2 3 4; do
    ip netns add "h$i"
    ip link add "v$i" type veth peer name eth0 netns "h$i"
    ip link set "v$i" master br0 up
    ip -n "h$i" addr add "10.78.0.$i/24" dev eth0
    ip -n "h$i" link set eth0 up
    ip -n "h$i" link set lo up
    mkdir "spool.node$i"
    nsenter --net="/run/netns/h$i" unshare --uts \
        sh -c "hostname node$i; exec slurmd -D" >"slurmd$i.out" 2>&1 &
done
for _ in $(seq 60); do
    sinfo --noheader --format='%T %D' 2>/dev/null | grep 'idle 4' >/dev/null && break
    sleep 1
done
sinfo
servers() { ps ax | grep -c '[0-9] [^ ]*rperf --mesh --supervised' || true; }
mesh() {
    salloc --nodes=4 --quiet "$rperf" mesh --start slurm --remote-rperf "$rperf" \
        --slow-latency 1000 "$@"
}
mesh --json -n 100 tcp_lat
echo "servers after the run: $(servers)"
mesh -t 60 tcp_bw >/dev/null 2>&1 &
await_servers 4
echo "servers during the run: $(servers)"
kill -KILL "$(pgrep -f "^$rperf mesh")"
await_servers 0
echo "servers after the death of the coordinator: $(servers)"
