//! Structures of the kernel's interface to user space.
//!
//! Field names and order are those of the kernel's headers (`rdma/*.h`). All integers have the
//! byte order of the processor unless their type says otherwise.

#![allow(
    clippy::struct_field_names,
    reason = "the names are those of the kernel"
)]

/// Declares structures that consist of integers. All bits of their defaults are zero.
macro_rules! abi {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: $type,)* }

            impl Default for $name {
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }
        )*
    };
}

pub(crate) mod core;
pub(crate) mod efa;
pub(crate) mod ioctl;
pub(crate) mod mlx5;
pub(crate) mod rdma_cm;
