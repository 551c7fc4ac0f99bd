//! The objects of an open device: handles, references and the order of destruction.

use std::collections::BTreeMap;

use crate::abi::core::qp_type;
use crate::errno::{Errno, Result};

/// An object that a handle names, with the number that the adapter gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pd(u32),
    Cq(u32),
    Qp {
        number: u32,
        kind: u8,
    },
    /// A second handle of a queue pair of an XRC domain.
    OpenedQp(u32),
    Srq(u32),
    /// Index of the key of a memory region.
    Mr(u32),
    /// Index of the key of a memory window.
    Mw(u32),
    Ah(u32),
    Xrcd(u32),
    Dm(u32),
    /// A DMA handle, which only is a hint.
    Dmah,
    CompCntr(u32),
}

struct Object {
    kind: Kind,
    /// Objects that refer to this one.
    uses: u32,
    /// Objects that this one refers to.
    parents: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct Objects {
    map: BTreeMap<u32, Object>,
    next: u32,
}

impl Objects {
    /// Adds an object that refers to `parents`, and returns its handle.
    pub(crate) fn insert(&mut self, kind: Kind, parents: &[u32]) -> u32 {
        let handle = self.next;
        self.next += 1;
        for parent in parents {
            if let Some(parent) = self.map.get_mut(parent) {
                parent.uses += 1;
            }
        }
        let object = Object {
            kind,
            uses: 0,
            parents: parents.to_vec(),
        };
        self.map.insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: u32) -> Result<Kind> {
        self.map
            .get(&handle)
            .map(|object| object.kind)
            .ok_or(Errno::ENOENT)
    }

    /// Removes an object. Fails with `EBUSY` while another object refers to it.
    pub(crate) fn remove(&mut self, handle: u32) -> Result<()> {
        match self.map.get(&handle) {
            None => Err(Errno::ENOENT),
            Some(object) if object.uses > 0 => Err(Errno::EBUSY),
            Some(_) => {
                let object = self.map.remove(&handle).ok_or(Errno::ENOENT)?;
                self.release(&object.parents);
                Ok(())
            }
        }
    }

    fn release(&mut self, parents: &[u32]) {
        for parent in parents {
            if let Some(parent) = self.map.get_mut(parent) {
                parent.uses -= 1;
            }
        }
    }

    /// Adds a reference from `child` to `parent`.
    pub(crate) fn add_parent(&mut self, child: u32, parent: u32) {
        if let Some(object) = self.map.get_mut(&child) {
            object.parents.push(parent);
            if let Some(object) = self.map.get_mut(&parent) {
                object.uses += 1;
            }
        }
    }

    /// Returns the first parent of an object: its protection domain.
    pub(crate) fn first_parent(&self, handle: u32) -> Option<u32> {
        self.map.get(&handle)?.parents.first().copied()
    }

    /// Replaces one parent of an object.
    pub(crate) fn replace_parent(&mut self, child: u32, old: u32, new: u32) {
        if let Some(object) = self.map.get_mut(&child) {
            object.parents.retain(|parent| *parent != old);
            self.release(&[old]);
            self.add_parent(child, new);
        }
    }

    /// Removes all objects, those that refer to others first.
    pub(crate) fn take_all(&mut self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        while let Some(handle) = self
            .map
            .iter()
            .rev()
            .find(|(_, object)| object.uses == 0)
            .map(|(handle, _)| *handle)
        {
            kinds.extend(self.get(handle));
            // The object is unused.
            let _ = self.remove(handle);
        }
        kinds
    }

    /// Forgets everything except protection domains.
    pub(crate) fn keep_pds(&mut self) {
        self.map
            .retain(|_, object| matches!(object.kind, Kind::Pd(_)));
        for object in self.map.values_mut() {
            object.uses = 0;
        }
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.map.values().map(|object| object.kind)
    }

    /// Returns the number and the type of a queue pair.
    pub(crate) fn qp(&self, handle: u32) -> Result<(u32, u8)> {
        match self.get(handle)? {
            Kind::Qp { number, kind } => Ok((number, kind)),
            Kind::OpenedQp(number) => Ok((number, qp_type::XRC_TGT)),
            _ => Err(Errno::EINVAL),
        }
    }
}

macro_rules! numbers {
    ($($name:ident: $kind:ident),*) => {
        impl Objects {
            $(pub(crate) fn $name(&self, handle: u32) -> Result<u32> {
                match self.get(handle)? {
                    Kind::$kind(number) => Ok(number),
                    _ => Err(Errno::EINVAL),
                }
            })*
        }
    };
}

numbers!(pd: Pd, cq: Cq, srq: Srq, mr: Mr, xrcd: Xrcd, dm: Dm, comp_cntr: CompCntr);
