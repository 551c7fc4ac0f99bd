//! The traits of byte containers of the standard library, for buffers that the CPU can read.

use std::borrow::{Borrow, BorrowMut};
use std::hash::{Hash, Hasher};
use std::slice;

use super::buf::Buf;
use super::frozen::Frozen;

/// Implements the traits of a type that dereferences to `[u8]`. Values are equal if their bytes
/// are, as for `Vec<u8>`.
macro_rules! bytes {
    ($($name:ident)*) => {
        $(
            impl AsRef<[u8]> for $name {
                #[inline]
                fn as_ref(&self) -> &[u8] {
                    self
                }
            }

            impl Borrow<[u8]> for $name {
                #[inline]
                fn borrow(&self) -> &[u8] {
                    self
                }
            }

            impl PartialEq for $name {
                fn eq(&self, other: &Self) -> bool {
                    **self == **other
                }
            }

            impl Eq for $name {}

            impl Hash for $name {
                fn hash<H: Hasher>(&self, state: &mut H) {
                    (**self).hash(state);
                }
            }

            impl PartialEq<[u8]> for $name {
                fn eq(&self, other: &[u8]) -> bool {
                    **self == *other
                }
            }

            impl PartialEq<&[u8]> for $name {
                fn eq(&self, other: &&[u8]) -> bool {
                    **self == **other
                }
            }

            impl<const N: usize> PartialEq<[u8; N]> for $name {
                fn eq(&self, other: &[u8; N]) -> bool {
                    **self == *other
                }
            }

            impl<const N: usize> PartialEq<&[u8; N]> for $name {
                fn eq(&self, other: &&[u8; N]) -> bool {
                    **self == **other
                }
            }

            impl<'a> IntoIterator for &'a $name {
                type Item = &'a u8;
                type IntoIter = slice::Iter<'a, u8>;

                fn into_iter(self) -> Self::IntoIter {
                    self.iter()
                }
            }
        )*
    };
}

bytes!(Buf Frozen);

impl AsMut<[u8]> for Buf {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl BorrowMut<[u8]> for Buf {
    #[inline]
    fn borrow_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl<'a> IntoIterator for &'a mut Buf {
    type Item = &'a mut u8;
    type IntoIter = slice::IterMut<'a, u8>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// [Freezes](Buf::freeze) the buffer.
impl From<Buf> for Frozen {
    fn from(buf: Buf) -> Self {
        buf.freeze()
    }
}

/// [Thaws](Frozen::try_thaw) the buffer, or returns it if there are other references.
impl TryFrom<Frozen> for Buf {
    type Error = Frozen;

    fn try_from(frozen: Frozen) -> Result<Self, Frozen> {
        frozen.try_thaw()
    }
}
