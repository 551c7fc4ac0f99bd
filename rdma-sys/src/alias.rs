//! Names that the headers make with macros bindgen cannot evaluate.

#![allow(missing_docs, reason = "C's man pages document C's names")]

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

/// What a custom allocator returns to have the provider allocate by itself.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
/// What `ibv_context::abi_compat` holds in a context with an extended table.
pub const __VERBS_ABI_IS_EXTENDED: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
