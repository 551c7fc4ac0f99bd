# shellcheck shell=bash
# Runs programs on the models of adapters (nic-model), which need no device and no privileges.

# Runs a command on the model of mlx5_0 or efa_0: on_model DEVICE COMMAND… The library of the model
# must have been built.
on_model() {
    local library device=$1
    library=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/libnic_model.so
    shift
    RDMA_LAB_DEVICES=$device NIC_MODEL=$device NIC_MODEL_LINK=ethernet LD_PRELOAD=$library "$@"
}
