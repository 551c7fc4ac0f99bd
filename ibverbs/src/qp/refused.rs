//! Explains posts that the provider refused, by the state of the queue pair.

use super::handle::QpHandle;
use super::state::QpState;
use crate::error::{Error, ErrorKind};
use crate::transport::Transport;
use crate::wr::{PostError, refusal};

impl QpHandle<'_> {
    /// Returns the error of a post that the provider refused: the state of the queue pair and, if
    /// the state does not allow the post, the remedy. Returns `None` for other reasons.
    pub(crate) fn explain_post(self, verb: &'static str, error: PostError) -> Option<Error> {
        let errno = error.errno()?;
        // The state is read after the failure, so that a successful post costs nothing.
        let Ok(state) = self.state() else {
            return Some(refusal(verb, error, errno, &self.describe()));
        };
        let queue = format!("{} in state {state}", self.describe());
        let explained = refusal(verb, error, errno, &queue);
        let connects = self.follows_ibta_states();
        Some(
            match remedy(self.transport, state, verb != "ibv_post_recv") {
                Some(_) if !connects && state != QpState::ERR => {
                    explained.with_kind(ErrorKind::WrongState).with_help(
                        "connect the queue pair with rdma_cm first; on iWARP there is no other way",
                    )
                }
                Some(help) => explained.with_kind(ErrorKind::WrongState).with_help(help),
                None => explained,
            },
        )
    }
}

/// Returns the remedy if no request, or no send, can be posted in `state` (IBA 10.3.1).
fn remedy(transport: Transport, state: QpState, sends: bool) -> Option<&'static str> {
    let connects = matches!(
        transport,
        Transport::Rc | Transport::Uc | Transport::XrcSend
    );
    Some(match state {
        QpState::RESET if connects => {
            "initialize and connect the queue pair first, with `init` and `connect` or with rdma_cm"
        }
        QpState::INIT | QpState::RTR if sends && connects => {
            "sends need the state RTS: connect the queue pair first, with `connect` or with rdma_cm"
        }
        QpState::RESET => "start the queue pair first, with `start`",
        QpState::INIT | QpState::RTR if sends => "sends need the state RTS: call `start` first",
        QpState::SQE if sends => {
            "a send has failed: retire its completion, then modify the queue pair to RTS"
        }
        QpState::ERR => {
            "the queue pair has failed or was disconnected: retire its completions, then destroy it \
             and connect a new one"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_depends_on_transport_state_and_queue() {
        let remedy = |transport, state, sends| remedy(transport, state, sends).unwrap_or_default();
        for transport in [Transport::Rc, Transport::Uc, Transport::XrcSend] {
            assert!(remedy(transport, QpState::RESET, true).contains("`init` and `connect`"));
            assert!(remedy(transport, QpState::INIT, true).contains("state RTS: connect"));
            assert!(remedy(transport, QpState::RTR, true).contains("state RTS: connect"));
            assert!(remedy(transport, QpState::ERR, true).contains("disconnected"));
        }
        for transport in [Transport::Ud, Transport::RawPacket] {
            assert!(remedy(transport, QpState::RESET, false).contains("`start`"));
            assert!(remedy(transport, QpState::INIT, true).contains("call `start`"));
        }
        assert!(remedy(Transport::Ud, QpState::SQE, true).contains("modify"));
        for state in [QpState::INIT, QpState::RTR, QpState::RTS, QpState::SQE] {
            assert_eq!(
                remedy(Transport::Rc, state, false),
                "",
                "receives in {state}"
            );
        }
        assert_eq!(remedy(Transport::Rc, QpState::RTS, true), "");
        assert_eq!(remedy(Transport::Rc, QpState::SQD, true), "");
    }
}
