//! The layout of the function's only memory region, BAR 0.
//!
//! The first pages have the initialization segment and MSI-X. Every further page is a user access
//! region (UAR) with doorbells; its index is its page.

/// Size of a page of doorbells in bytes.
pub(crate) const PAGE: u64 = 4096;
/// Number of pages, and the limit of their indices.
pub(crate) const PAGES: u32 = 4096;
/// Size of the region in bytes.
pub(crate) const SIZE: u64 = PAGES as u64 * PAGE;
/// Index of the first page of doorbells.
pub(crate) const FIRST_UAR: u32 = 16;

/// Number of MSI-X vectors.
pub(crate) const VECTORS: u32 = 64;
/// Offset of the table of MSI-X vectors.
pub(crate) const MSIX_TABLE: u32 = 0x8000;
/// Offset of the pending bits of MSI-X.
pub(crate) const MSIX_PENDING: u32 = 0x9000;
