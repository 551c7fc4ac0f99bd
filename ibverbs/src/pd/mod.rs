//! Domains: protection domains, parent and thread domains, and XRC domains.
//!
//! Memory, address handles and queue pairs are created in a protection domain.

mod parent_domain;
mod protection_domain;
mod xrc_domain;

pub use self::parent_domain::{ParentDomain, ThreadDomain};
pub use self::protection_domain::ProtectionDomain;
pub(crate) use self::protection_domain::{AttachedQueuePair, DomainKey};
pub(crate) use self::xrc_domain::AttachedReceiver;
pub use self::xrc_domain::{XrcDomain, XrcdOpen};
