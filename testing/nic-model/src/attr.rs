//! The attributes of an ioctl.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::ioctl::{ATTR_F_VALID_OUTPUT, Attr, Header, UHW_IN, UHW_OUT};
use crate::errno::{Errno, Result};
use crate::memory;

/// The attributes of one call.
#[derive(Default)]
pub(crate) struct Attrs {
    /// Address of the first attribute in the program.
    address: u64,
    list: Vec<Attr>,
}

impl Attrs {
    /// Reads the header and the attributes at `address`.
    pub(crate) fn parse(address: u64) -> Result<(Header, Self)> {
        let header: Header = memory::read(address)?;
        let size = size_of::<Header>() + usize::from(header.num_attrs) * size_of::<Attr>();
        if usize::from(header.length) != size || header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(Errno::EINVAL);
        }
        let address = address + size_of::<Header>() as u64;
        let mut list = vec![Attr::new_zeroed(); usize::from(header.num_attrs)];
        memory::copy_in(address, list.as_mut_slice().as_mut_bytes())?;
        let repeated = (1..list.len()).any(|n| {
            let id = list[n].attr_id;
            list[..n].iter().any(|other| other.attr_id == id)
        });
        if repeated {
            return Err(Errno::EINVAL);
        }
        Ok((header, Self { address, list }))
    }

    fn find(&self, id: u16) -> Option<(usize, &Attr)> {
        self.list
            .iter()
            .enumerate()
            .find(|(_, attr)| attr.attr_id == id)
    }

    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Returns the length of an attribute, or 0 if it is missing.
    pub(crate) fn length(&self, id: u16) -> usize {
        self.find(id).map_or(0, |(_, attr)| usize::from(attr.len))
    }

    /// Reads an input attribute. The program may pass a shorter one; the rest is then 0.
    pub(crate) fn read_prefix<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T> {
        let mut value = T::new_zeroed();
        if let Some((_, attr)) = self.find(id) {
            let length = size_of::<T>().min(usize::from(attr.len));
            let into = &mut value.as_mut_bytes()[..length];
            if attr.len <= 8 {
                into.copy_from_slice(&attr.data.to_ne_bytes()[..length]);
            } else {
                memory::copy_in(attr.data, into)?;
            }
        }
        Ok(value)
    }

    /// Reads an input attribute. Fails if it is missing (`missing`) or too short.
    pub(crate) fn read_whole<T: FromBytes + IntoBytes>(
        &self,
        id: u16,
        missing: Errno,
    ) -> Result<T> {
        if self.length(id) < size_of::<T>() {
            return Err(missing);
        }
        self.read_prefix(id)
    }

    /// Returns a mandatory number.
    pub(crate) fn u32(&self, id: u16) -> Result<u32> {
        self.read_whole(id, Errno::EINVAL)
    }

    /// Returns an optional number.
    pub(crate) fn u32_or_zero(&self, id: u16) -> Result<u32> {
        self.read_prefix(id)
    }

    /// Returns a mandatory number of 8 bytes: also a user handle or a constant.
    pub(crate) fn u64(&self, id: u16) -> Result<u64> {
        self.find(id)
            .map(|(_, attr)| attr.data)
            .ok_or(Errno::EINVAL)
    }

    /// Returns a mandatory object handle.
    pub(crate) fn handle(&self, id: u16) -> Result<u32> {
        u32::try_from(self.u64(id)?).map_err(|_| Errno::ENOENT)
    }

    /// Returns an optional object handle.
    pub(crate) fn optional_handle(&self, id: u16) -> Result<Option<u32>> {
        self.has(id).then(|| self.handle(id)).transpose()
    }

    /// Returns an optional descriptor.
    pub(crate) fn optional_fd(&self, id: u16) -> Result<Option<i32>> {
        let number = |(_, attr): (usize, &Attr)| i32::try_from(attr.data.cast_signed());
        self.find(id)
            .map(number)
            .transpose()
            .map_err(|_| Errno::EBADF)
    }

    /// Writes an output attribute, if the program asked for it. A longer buffer is filled with 0, a
    /// shorter one receives the beginning.
    pub(crate) fn write<T: IntoBytes + Immutable + ?Sized>(
        &self,
        id: u16,
        value: &T,
    ) -> Result<()> {
        let Some((position, attr)) = self.find(id) else {
            return Ok(());
        };
        let mut bytes = value.as_bytes().to_vec();
        bytes.resize(usize::from(attr.len), 0);
        memory::copy_out(attr.data, &bytes)?;
        let flags = attr.flags | ATTR_F_VALID_OUTPUT;
        memory::write(self.entry(position) + 4, &flags)
    }

    /// Returns the handle or descriptor of a new object to the program.
    pub(crate) fn write_handle(&self, id: u16, handle: u64) -> Result<()> {
        let (position, _) = self.find(id).ok_or(Errno::EINVAL)?;
        memory::write(self.entry(position) + 8, &handle)
    }

    /// Returns the address of an attribute in the program.
    fn entry(&self, position: usize) -> u64 {
        self.address + (position * size_of::<Attr>()) as u64
    }
}

/// Data that the provider and the driver exchange beside a command.
pub(crate) struct Udata<'a>(pub(crate) &'a Attrs);

impl Udata<'_> {
    pub(crate) fn read<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        self.0.read_prefix(UHW_IN)
    }

    pub(crate) fn write<T: IntoBytes + Immutable>(&self, value: &T) -> Result<()> {
        self.0.write(UHW_OUT, value)
    }
}
