//! Decoding of the commands that the program writes to the descriptor.

use zerocopy::{FromBytes, IntoBytes};

use super::{Cm, Id, State, resolve};
use crate::abi::core::qp_type;
use crate::abi::rdma_cm::{
    Accept, Bind, Connect, CreateId, Header, InitQpAttr, MigrateId, OnId, PATH_FLAGS, PathData,
    Reject, ResolveAddr, SetOption, WithNumber, WriteCmEvent, cmd, event as events, option,
    port_space, query,
};
use crate::errno::{Errno, Result};
use crate::memory;
use crate::nic::Shared;

use super::address::Address;
use super::event::plain;

/// Largest backlog (`net.rdma_ucm.max_backlog`).
const MAX_BACKLOG: u32 = 1024;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;

/// A command: its file, its address behind the header, and the sizes of its input and output.
pub(crate) struct Command {
    file: u32,
    number: u32,
    address: u64,
    input: usize,
    output: usize,
}

impl Command {
    /// Reads the header (`ucma_write`).
    pub(crate) fn parse(file: u32, address: u64, length: usize) -> Result<Self> {
        if length < size_of::<Header>() {
            return Err(Errno::EINVAL);
        }
        let header: Header = memory::read(address)?;
        let input = usize::from(header.input);
        if header.cmd > cmd::WRITE_CM_EVENT || input + size_of::<Header>() > length {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            file,
            number: header.cmd,
            address: address + size_of::<Header>() as u64,
            input,
            output: usize::from(header.output),
        })
    }

    pub(super) fn file(&self) -> u32 {
        self.file
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Reads the structure of the command. What an older program omits at its end is 0.
    fn read<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        let length = bytes.len().min(self.input);
        memory::copy_in(self.address, &mut bytes[..length])?;
        Ok(value)
    }

    /// Writes a response as far as the program has room for it, at least `required` bytes.
    pub(super) fn respond(&self, to: u64, bytes: &[u8], required: usize) -> Result<()> {
        if self.output < required {
            return Err(Errno::ENOSPC);
        }
        memory::copy_out(to, &bytes[..bytes.len().min(self.output)])
    }
}

impl Cm {
    /// Executes a command. `file_of` returns the number of the file with a descriptor.
    pub(crate) fn execute(
        &mut self,
        cx: &mut Shared,
        command: &Command,
        file_of: impl Fn(i32) -> Option<u32>,
    ) -> Result<()> {
        let file = command.file;
        match command.number {
            cmd::CREATE_ID => self.create_id(command),
            cmd::DESTROY_ID => self.destroy_id(cx, command),
            cmd::BIND => {
                let bind: Bind = command.read()?;
                if bind.reserved != 0 || bind.addr_size == 0 {
                    return Err(Errno::EINVAL);
                }
                let address = Address::parse_sized(&bind.addr, bind.addr_size)?;
                self.bind(cx, file, bind.id, address)
            }
            cmd::RESOLVE_ADDR => {
                let resolve: ResolveAddr = command.read()?;
                if resolve.reserved != 0 || resolve.dst_size == 0 {
                    return Err(Errno::EINVAL);
                }
                let source = if resolve.src_size == 0 {
                    Address::Unspecified
                } else {
                    Address::parse_sized(&resolve.src_addr, resolve.src_size)?
                };
                let destination = Address::parse_sized(&resolve.dst_addr, resolve.dst_size)?;
                self.resolve_addr(cx, file, resolve.id, source, destination)
            }
            cmd::RESOLVE_ROUTE => {
                let resolve: WithNumber = command.read()?;
                self.resolve_route(file, resolve.id)
            }
            cmd::QUERY => self.query(command, &command.read()?),
            cmd::CONNECT => {
                let connect: Connect = command.read()?;
                if connect.conn_param.valid == 0 {
                    return Err(Errno::EINVAL);
                }
                self.connect(cx, file, &connect)
            }
            cmd::LISTEN => {
                let listen: WithNumber = command.read()?;
                let backlog = match listen.number {
                    number @ 1..MAX_BACKLOG => number,
                    _ => MAX_BACKLOG,
                };
                self.listen(cx, file, listen.id, backlog)
            }
            cmd::ACCEPT => {
                let accept: Accept = command.read()?;
                self.accept(cx, file, &accept)
            }
            cmd::REJECT => {
                let reject: Reject = command.read()?;
                self.reject(cx, file, &reject)
            }
            cmd::DISCONNECT => {
                let disconnect: WithNumber = command.read()?;
                self.disconnect(cx, file, disconnect.id)
            }
            cmd::INIT_QP_ATTR => {
                let init: InitQpAttr = command.read()?;
                let attributes = self.init_qp_attr(cx, file, init.id, init.qp_state)?;
                let bytes = attributes.as_bytes();
                command.respond(init.response, bytes, bytes.len())
            }
            cmd::GET_EVENT => {
                let response: u64 = command.read()?;
                let old = size_of_old_event();
                if command.output < old {
                    return Err(Errno::ENOSPC);
                }
                let event = self.next_event(file)?;
                command.respond(response, event.as_bytes(), old)
            }
            // librdmacm uses the commands without AF_IB only on kernels that lack it, and before
            // another thread has found out.
            cmd::GET_OPTION | cmd::BIND_IP | cmd::RESOLVE_IP | cmd::QUERY_ROUTE => {
                Err(Errno::ENOSYS)
            }
            cmd::SET_OPTION => self.set_option(file, &command.read()?),
            cmd::NOTIFY => {
                let notify: WithNumber = command.read()?;
                self.bound_id(file, notify.id)?;
                if notify.number != COMM_EST {
                    return Err(Errno::EINVAL);
                }
                self.notify_established(notify.id)
            }
            cmd::MIGRATE_ID => {
                let migrate: MigrateId = command.read()?;
                let from = file_of(migrate.fd).ok_or(Errno::EINVAL)?;
                let reported = self.migrate(migrate.id, from, file)?;
                command.respond(migrate.response, reported.as_bytes(), 4)
            }
            // There is no subnet administrator on Ethernet.
            cmd::JOIN_IP_MCAST | cmd::JOIN_MCAST | cmd::RESOLVE_IB_SERVICE => {
                Err(Errno::EOPNOTSUPP)
            }
            cmd::LEAVE_MCAST => Err(Errno::ENOENT),
            cmd::WRITE_CM_EVENT => self.write_event(file, &command.read()?),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reports an event that the program orders (`ucma_write_cm_event`).
    fn write_event(&mut self, file: u32, write: &WriteCmEvent) -> Result<()> {
        if !matches!(write.event, events::USER | events::INTERNAL) {
            return Err(Errno::EINVAL);
        }
        self.id(file, write.id)?;
        let mut event = plain(write.event, write.status.cast_signed());
        // The argument takes the place of the first fields.
        [event.conn.qp_num, event.conn.qkey] = write.arg;
        self.post(write.id, event);
        Ok(())
    }

    fn query(&mut self, command: &Command, on: &OnId) -> Result<()> {
        match on.option {
            query::ADDR => self.query_addr(command, on),
            query::PATH => self.query_path(command, on),
            query::GID => self.query_gid(command, on),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn create_id(&mut self, command: &Command) -> Result<()> {
        let create: CreateId = command.read()?;
        let kind = match create.ps {
            port_space::TCP => qp_type::RC,
            port_space::UDP | port_space::IPOIB => qp_type::UD,
            port_space::IB => create.qp_type,
            _ => return Err(Errno::EINVAL),
        };
        if command.output < size_of::<u32>() {
            return Err(Errno::ENOSPC);
        }
        let id = Id::new(command.file, create.uid, create.ps, kind);
        let number = self.ids.insert(id)?;
        command
            .respond(create.response, number.as_bytes(), 4)
            .inspect_err(|_| {
                self.ids.remove(number);
            })
    }

    fn destroy_id(&mut self, cx: &mut Shared, command: &Command) -> Result<()> {
        let destroy: OnId = command.read()?;
        if command.output < size_of::<u32>() {
            return Err(Errno::ENOSPC);
        }
        self.id(command.file, destroy.id)?;
        let reported = self.remove_id(cx, destroy.id);
        command.respond(destroy.response, reported.as_bytes(), 4)
    }

    fn set_option(&mut self, file: u32, set: &SetOption) -> Result<()> {
        const LARGEST: u32 = 16 * 1024;

        let id = self.id(file, set.id)?;
        if set.optlen > LARGEST {
            return Err(Errno::EINVAL);
        }
        let byte = || match set.optlen {
            1 => memory::read::<u8>(set.optval),
            _ => Err(Errno::EINVAL),
        };
        let flag = || match set.optlen {
            4 => memory::read::<i32>(set.optval).map(|value| value != 0),
            _ => Err(Errno::EINVAL),
        };
        match (set.level, set.optname) {
            (option::LEVEL_ID, option::ID_TOS) => id.traffic_class = byte()?,
            (option::LEVEL_ID, option::ID_REUSEADDR) => {
                let reuse = flag()?;
                if !reuse && id.state != State::Idle {
                    return Err(Errno::EINVAL);
                }
                id.reuse = reuse;
            }
            (option::LEVEL_ID, option::ID_AFONLY) => {
                let only = flag()?;
                if !matches!(id.state, State::Idle | State::Bound) {
                    return Err(Errno::EINVAL);
                }
                id.only_family = Some(only);
            }
            (option::LEVEL_ID, option::ID_ACK_TIMEOUT) => {
                let timeout = byte()?;
                // The field of the attributes has five bits.
                if id.qp_type == qp_type::UD || timeout > 31 {
                    return Err(Errno::EINVAL);
                }
                id.ack_timeout = Some(timeout);
            }
            (option::LEVEL_IB, option::IB_PATH) => return self.set_path(file, set),
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }

    /// Sets the path of a route (`ucma_set_ib_path`). The model needs nothing of it.
    fn set_path(&mut self, file: u32, set: &SetOption) -> Result<()> {
        let mut bytes = vec![0; set.optlen as usize];
        memory::copy_in(set.optval, &mut bytes)?;
        let (paths, rest) = bytes.as_chunks::<{ size_of::<PathData>() }>();
        let is_usable = |path: &[u8; size_of::<PathData>()]| path[..4] == PATH_FLAGS.to_ne_bytes();
        if !rest.is_empty() || !paths.iter().any(is_usable) {
            return Err(Errno::EINVAL);
        }
        let id = self.bound_id(file, set.id)?;
        resolve::route_resolved(id)?;
        self.post(set.id, plain(events::ROUTE_RESOLVED, 0));
        Ok(())
    }
}

/// Returns the size of an event before it had `ece`, which a program must have room for.
const fn size_of_old_event() -> usize {
    std::mem::offset_of!(crate::abi::rdma_cm::EventResp, reserved)
}
