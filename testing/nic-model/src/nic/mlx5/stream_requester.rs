//! Executes the requests of streams: those of a stream in order, those of different streams
//! independently. An error stops only its stream.

use std::mem;

use super::Mlx5;
use super::cqe::Syndrome;
use super::flush::skip;
use super::progress::Requester;
use super::qp::Qp;
use super::requester::BURST;
use crate::abi::mlx5::{DEVX_OBJ_MODIFY_CMD_IN, DEVX_OBJ_MODIFY_CMD_OUT, RTS2RTS_QP, Rts2RtsQp};
use crate::attr::Attrs;
use crate::errno::{Errno, Result};
use crate::network::packet::Packet;
use crate::nic::Shared;
use crate::qp_state::RTS;

/// Offset of the stream in a request (`mlx5_wqe_ctrl_seg`).
const STREAM_ID: usize = 9;

impl Mlx5 {
    /// Executes requests of a queue pair with streams. Returns `true` if there was work.
    ///
    /// Requests are taken from the queue in order. One that finds no free channel, or too many
    /// requests of its stream in flight, holds up those behind it.
    pub(super) fn run_streams(&mut self, cx: &mut Shared, qp: &mut Qp) -> bool {
        let mut worked = false;
        let requesters = qp
            .streams
            .iter()
            .flat_map(|streams| streams.requesters.keys());
        for stream in requesters.copied().collect::<Vec<_>>() {
            worked |= self.in_stream(qp, stream, |nic, qp| {
                let continued = nic.continue_requests(cx, qp);
                nic.retire(cx, qp);
                continued
            });
        }
        for _ in 0..BURST {
            let (Some(stream), RTS) = (next_stream(qp), qp.state) else {
                break;
            };
            let Some(streams) = &qp.streams else {
                break;
            };
            if streams.errored.contains(&stream) {
                let posted = qp.send_posted();
                if let Some((counter, op)) = skip(qp, posted) {
                    self.fail_send(cx, qp, counter, op, Syndrome::Flush);
                }
            } else if !streams.has_channel(stream)
                || !self.in_stream(qp, stream, |nic, qp| {
                    let started = Self::start_next(cx, qp);
                    nic.retire(cx, qp);
                    started
                })
            {
                break;
            }
            worked = true;
        }
        worked
    }

    pub(super) fn receive_in_stream(&mut self, cx: &mut Shared, qp: &mut Qp, packet: &Packet) {
        let Ok(stream) = u16::try_from(packet.header.stream) else {
            return;
        };
        self.in_stream(qp, stream, |nic, qp| {
            nic.receive_in_order(cx, qp, packet);
        });
    }

    /// Calls a function while `Qp::requester` is the requester of a stream.
    fn in_stream<R>(
        &mut self,
        qp: &mut Qp,
        stream: u16,
        call: impl FnOnce(&mut Self, &mut Qp) -> R,
    ) -> R {
        let requester = qp.streams.as_mut().and_then(|streams| {
            streams.current = stream;
            streams.requesters.remove(&stream)
        });
        qp.requester = requester.unwrap_or_else(|| Requester::new(qp.attr.sq_psn, &qp.attr, false));
        let result = call(self, qp);
        let requester = mem::take(&mut qp.requester);
        if let Some(streams) = &mut qp.streams {
            streams.requesters.insert(stream, requester);
        }
        result
    }

    /// Handles a failed request. It stops its stream, or the queue pair if that has no streams or
    /// too many of them have failed.
    pub(super) fn fail_requester(&mut self, cx: &mut Shared, qp: &mut Qp) {
        let Some(streams) = &mut qp.streams else {
            self.enter_error(cx, qp);
            return;
        };
        streams.errored.insert(streams.current);
        if streams.errored.len() >= streams.max_errored {
            self.enter_error(cx, qp);
            return;
        }
        self.flush_requester(cx, qp);
        qp.requester.restart(&qp.attr);
    }

    /// Executes the firmware command of `mlx5dv_dci_stream_id_reset`, which ends the error of a
    /// stream. rdma-core's tests expect it to fail if there is no error.
    pub(super) fn modify_by_command(&mut self, attrs: &Attrs) -> Result<()> {
        // Examples: libmlx5 returns EINVAL for both statuses.
        const BAD_PARAMETER: u8 = 0x03;
        const BAD_QP_STATE: u8 = 0x10;
        const DCI_STREAM: u64 = 1 << 0;

        let command: Rts2RtsQp = attrs.read_whole(DEVX_OBJ_MODIFY_CMD_IN, Errno::EINVAL)?;
        let has_extension = command.qpn.get() >> 31 != 0;
        if command.opcode.get() != RTS2RTS_QP
            || !has_extension
            || command.extension_mask.get() != DCI_STREAM
        {
            return Err(Errno::EINVAL);
        }
        let number = command.qpn.get() & 0x00ff_ffff;
        let found = self.qps.iter().find(|(_, qp)| qp.number == number);
        let index = found.map(|(index, _)| index).ok_or(Errno::EINVAL)?;
        let qp = self.qps.get_mut(index).ok_or(Errno::EINVAL)?;
        let stream = command.dci_stream.get();
        let mut end_error = || (qp.streams.as_mut()).is_some_and(|all| all.errored.remove(&stream));
        let status = if qp.state != RTS {
            BAD_QP_STATE
        } else if end_error() {
            0
        } else {
            BAD_PARAMETER
        };
        let mut answer = [0_u8; 16];
        answer[0] = status;
        attrs.write(DEVX_OBJ_MODIFY_CMD_OUT, &answer)?;
        if status == 0 {
            Ok(())
        } else {
            Err(Errno::EREMOTEIO)
        }
    }
}

/// Returns the stream of the next request in the queue.
fn next_stream(qp: &Qp) -> Option<u16> {
    let posted = qp.send_posted();
    let ring = qp.send.as_ref().filter(|ring| ring.taken != posted)?;
    let mut first = [0; 16];
    ring.memory.read(ring.offset(ring.taken), &mut first);
    Some(u16::from_be_bytes([first[STREAM_ID], first[STREAM_ID + 1]]))
}
