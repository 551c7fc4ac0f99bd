#!/usr/bin/env bash
# Runs the pyverbs tests of rdma-core: pyverbs.sh LIBRARY, on the models of the adapters, where
# LIBRARY is libnic_model.so; or pyverbs.sh PROGRAM, under the driver of mlx5, where PROGRAM
# is mlx5-device.
#
# The package python3-pyverbs has the tests as documentation. It is unpacked in the cache, not
# installed.
set -euo pipefail
model=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. ci/lib/common.sh
. ci/lib/tools.sh

# Number of tests that passed on each device when this was written.
readonly -A MINIMUM=([mlx5_0]=133 [efa_0]=61 [driver]=113)

version=$(dpkg-query -W -f '${Version}' libibverbs1)
work=$LAB_CACHE/pyverbs-$version

if [[ ! -e $work/package ]]; then
    mkdir -p "$work/package.new"
    (cd "$work" && apt-get -q -o APT::Sandbox::User=root download "python3-pyverbs=$version")
    dpkg-deb -x "$work"/python3-pyverbs_*.deb "$work/package.new"
    mv "$work/package.new" "$work/package"
fi
rm -rf "$work/run"
mkdir -p "$work/run"
cp -r "$work/package/usr/share/doc/rdma-core/tests" "$work/run/"
gunzip "$work/run/tests/"*.gz
# Prints the command: tests DEVICE MINIMUM
tests() { echo "/usr/bin/python3 ci/tests/pyverbs.py $1 $2 $work/package/usr/lib/python3/dist-packages $work/run/tests"; }

if [[ $model != *.so ]]; then
    ci/lab run --timeout 900 --vfio-user "$model" -- "modprobe mlx5_ib && $(tests mlx5_0 "${MINIMUM[driver]}")"
    exit
fi
for device in mlx5_0 efa_0; do
    # shellcheck disable=SC2046 # the paths have no spaces
    NIC_MODEL=$device LD_PRELOAD=$model timeout 300 $(tests "$device" "${MINIMUM[$device]}")
done
