//! Names that the headers define with macros that bindgen cannot evaluate.

#![allow(missing_docs, reason = "the manual pages document these names")]

use core::ffi::c_void;

pub use crate::bindings::{
    ib_uverbs_advise_mr_advice as ibv_advise_mr_advice,
    ib_uverbs_flow_action_esp as ibv_flow_action_esp,
    ib_uverbs_flow_action_esp_encap as ibv_flow_action_esp_encap,
    ib_uverbs_flow_action_esp_flags as ibv_flow_action_esp_flags,
    ib_uverbs_flow_action_esp_keymat as ibv_flow_action_esp_keymat,
    ib_uverbs_flow_action_esp_keymat_aes_gcm as ibv_flow_action_esp_keymat_aes_gcm,
    ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo as ibv_flow_action_esp_keymat_aes_gcm_iv_algo,
    ib_uverbs_flow_action_esp_replay as ibv_flow_action_esp_replay,
    ib_uverbs_flow_action_esp_replay_bmp as ibv_flow_action_esp_replay_bmp,
};
#[cfg(feature = "mlx5")]
pub use crate::bindings::{
    mlx5_ib_uapi_devx_async_cmd_hdr as mlx5dv_devx_async_cmd_hdr,
    mlx5_ib_uapi_devx_async_event_hdr as mlx5dv_devx_async_event_hdr,
    mlx5_ib_uapi_devx_create_event_channel_flags as mlx5dv_devx_create_event_channel_flags,
    mlx5_ib_uapi_dm_type as mlx5dv_alloc_dm_type,
    mlx5_ib_uapi_flow_action_flags as mlx5dv_flow_action_flags,
    mlx5_ib_uapi_flow_action_packet_reformat_type as mlx5dv_flow_action_packet_reformat_type,
    mlx5_ib_uapi_flow_table_type as mlx5dv_flow_table_type, mlx5_ib_uapi_query_port as mlx5dv_port,
    mlx5_ib_uapi_reg as mlx5dv_reg,
};

/// The result of a custom allocator that lets the provider allocate the memory itself.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
/// The value of `ibv_context::abi_compat` in a context with an extended function table.
pub const __VERBS_ABI_IS_EXTENDED: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
