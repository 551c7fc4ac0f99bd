#!/usr/bin/env bash
# Runs the pyverbs tests of rdma-core on the models of the adapters: pyverbs.sh LIBRARY [SOURCE]
#
# LIBRARY is libnic_model.so. SOURCE is the source of the installed rdma-core; without it, apt
# downloads Debian's source package. The package python3-pyverbs is unpacked, not installed.
set -euo pipefail
library=$(realpath "$1")
source=${2:+$(realpath "$2")}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. ci/lib/common.sh
. ci/lib/tools.sh
. ci/lib/backports.sh
. ci/lib/rdma_core.sh

# Number of tests that passed on each device when this was written.
readonly -A MINIMUM=([mlx5_0]=133 [efa_0]=60)

version=$(dpkg-query -W -f '${Version}' libibverbs1)
work=$LAB_CACHE/pyverbs-$version

if [[ ! -e $work/package ]]; then
    mkdir -p "$work/package.new"
    (cd "$work" && apt-get -q -o APT::Sandbox::User=root download "python3-pyverbs=$version")
    dpkg-deb -x "$work"/python3-pyverbs_*.deb "$work/package.new"
    mv "$work/package.new" "$work/package"
fi
if [[ -z $source ]]; then
    [[ -e $work/source ]] || download_rdma_core bookworm "$work" "$work/source" "$version"
    source=$work/source
fi
# Beside the tests, Python would find the sources of pyverbs instead of the package.
rm -rf "$work/run"
mkdir -p "$work/run"
cp -r "$source/tests" "$work/run/"
for device in mlx5_0 efa_0; do
    NIC_MODEL=$device LD_PRELOAD=$library timeout 300 /usr/bin/python3 ci/tests/pyverbs.py "$device" \
        "${MINIMUM[$device]}" "$work/package/usr/lib/python3/dist-packages" "$work/run/tests"
done
