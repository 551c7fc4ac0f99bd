//! Faults of this side of a connection: its adapter, port or queue pair. The peer is not the cause
//! of an error then.

use ibverbs::{Context, Error, ErrorKind, LinkLayer, PortState, QpState, Result};

use super::Connection;
use crate::help::no_answer;
use crate::id::Path;

const VERB: &str = "connection";

impl Connection {
    /// Checks this side of the connection: the adapter, its port, and the queue pair. An error that
    /// seems to be the peer's, such as a timeout, has its cause here if this function fails.
    ///
    /// Queries the adapter, and reads no [asynchronous events](ibverbs::event::AsyncEvents), because
    /// each event is returned to one reader only.
    ///
    /// # Errors
    /// - [`ErrorKind::PortDown`]: the port is not active.
    /// - [`ErrorKind::WrongState`]: the queue pair is not in RTS although the connection has not
    ///   ended. A failed request moves it to ERR.
    /// - The kind of a query that failed, if the adapter does not work.
    ///
    /// # Example
    /// ```no_run
    /// # fn f(connection: &rdmacm::Connection) {
    /// if let Err(fault) = connection.check_device() {
    ///     eprintln!("the peer is not the cause: {fault}");
    /// }
    /// # }
    /// ```
    #[doc(alias = "ibv_query_port")]
    #[doc(alias = "ibv_query_qp")]
    pub fn check_device(&self) -> Result<()> {
        self.check_port()?;
        if self.is_disconnected() {
            return Ok(());
        }
        let state = match self.qp().query() {
            Ok(attr) => attr.state,
            Err(error) => return Err(failed_query(self.qp().pd().context(), &error)),
        };
        if state == QpState::RTS {
            return Ok(());
        }
        let detail = format!(
            "the queue pair {} of {} is in state {state}",
            self.qp().qp_num(),
            self.device_name()
        );
        Err(Error::new(ErrorKind::WrongState, VERB, detail)
            .with_help("connect again; if it happens again, see the kernel's log (`dmesg`)"))
    }

    /// Like [`check_device`](Self::check_device), without the queue pair: for connections whose
    /// queue pair has left RTS.
    ///
    /// # Errors
    /// Same as [`check_device`](Self::check_device), except for [`ErrorKind::WrongState`].
    #[doc(alias = "ibv_query_port")]
    pub fn check_port(&self) -> Result<()> {
        check_port(self.qp().pd().context(), self.port_num())
    }
}

/// Checks an adapter and its port.
fn check_port(context: &Context, number: u8) -> Result<()> {
    let port = match context.query_port(number) {
        Ok(port) => port,
        Err(error) => return Err(failed_query(context, &error)),
    };
    // ACTIVE_DEFER: the link recovers, and the port can become ACTIVE again by itself.
    if matches!(port.state, PortState::ACTIVE | PortState::ACTIVE_DEFER) {
        return Ok(());
    }
    let detail = format!(
        "port {number} of {} is {}",
        context.device_name(),
        port.state
    );
    let help = if port.link_layer == LinkLayer::ETHERNET {
        "bring its network interface up with `ip link set NETDEV up` and check the cable; \
         `rdma link` shows the interface"
    } else {
        "check the cable and that a subnet manager is running"
    };
    Err(Error::new(ErrorKind::PortDown, VERB, detail).with_help(help))
}

/// Drivers answer queries while the link is down. After a fatal error, mlx5 fails them with EIO
/// or, in newer kernels, ENOLINK (`mlx5_internal_err_ret_value` in Linux `mlx5/core/cmd.c`).
fn failed_query(context: &Context, error: &Error) -> Error {
    let detail = format!(
        "the adapter {} does not work: {}",
        context.device_name(),
        error.message()
    );
    Error::new(error.kind(), VERB, detail)
        .with_help("see the kernel's log (`dmesg`), and reset the device or restart the host")
}

/// Names the cause in the error of a connect request without an answer: the fault of this side, if
/// there is one, or what the path to the peer needs. `is_reached` is `true` if the peer has
/// accepted the TCP connection of iWARP.
pub(crate) fn name_cause(error: Error, context: &Context, path: &Path, is_reached: bool) -> Error {
    match check_port(context, path.port_num) {
        Ok(()) => {
            let port = context.query_port(path.port_num);
            let link_layer = port.ok().map(|port| port.link_layer);
            error.with_help(no_answer(
                path.is_iwarp(),
                is_reached,
                link_layer,
                path.peer.port(),
            ))
        }
        Err(fault) => with_fault(&error, &fault),
    }
}

/// Returns the error with the detail and the remedy of a fault of this side.
pub fn with_fault(error: &Error, fault: &Error) -> Error {
    let detail = format!("{}: {}", error.detail(), fault.detail());
    let named = match error.errno() {
        Some(errno) => Error::from_errno(error.call(), errno, detail),
        None => Error::new(error.kind(), error.call(), detail),
    };
    match fault.help().or(error.help()) {
        Some(help) => named.with_help(help.to_owned()),
        None => named,
    }
}
