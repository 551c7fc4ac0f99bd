# Runs a mesh with the real kubectl and the API of kubernetes_api.py, whose pods are network
# namespaces, and kills a coordinator. Arguments: the path of rperf.
set -eu
rperf=$1
. "$(dirname "$0")/await_servers.sh"
api=$(dirname "$0")/kubernetes_api.py
mount -t tmpfs none /run
mkdir -p /run/mesh
cd /run/mesh
ip link set lo up
ip link add br0 type bridge
ip addr add 10.79.0.254/24 dev br0
ip link set br0 up
for i in 1 2 3; do
    ip netns add "h$i"
    ip link add "v$i" type veth peer name eth0 netns "h$i"
    ip link set "v$i" master br0 up
    ip -n "h$i" addr add "10.79.0.$i/24" dev eth0
    ip -n "h$i" link set eth0 up
    ip -n "h$i" link set lo up
done
python3 "$api" 8001 3 >requests 2>api.log &
cat >config <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: mesh, cluster: {server: "http://127.0.0.1:8001"}}]
contexts: [{name: mesh, context: {cluster: mesh, user: mesh}}]
users: [{name: mesh, user: {}}]
current-context: mesh
CONFIG
export KUBECONFIG=/run/mesh/config HOME=/run/mesh
for _ in $(seq 50); do
    kubectl get pods --output=name >/dev/null 2>&1 && break
    sleep 0.2
done
servers() { ps ax | grep -c '[0-9] [^ ]*rperf --mesh --supervised' || true; }
mesh() {
    "$rperf" mesh --selector app=rperf --start kubectl --remote-rperf "$rperf" \
        --slow-latency 1000 "$@"
}
mesh --json -n 100 tcp_lat
echo "servers after the run: $(servers)"
mesh -t 60 tcp_bw >/dev/null 2>&1 &
await_servers 3
echo "servers during the run: $(servers)"
kill -KILL "$(pgrep -f "^$rperf mesh")"
await_servers 0
echo "servers after the death of the coordinator: $(servers)"
"$rperf" mesh --selector app=other rc_bw 2>&1 || echo "status $?"
echo "requests:"
cut -d'?' -f1 requests | sort | uniq
cat api.log
