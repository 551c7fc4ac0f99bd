//! Names that most programs use, for `use ibverbs::prelude::*`.

pub use crate::{
    AccessFlags, AsRaw, Buf, Completion, CompletionChannel, CompletionQueue,
    ConnectedDuplexTransport, ConnectedTransport, Context, CqOptions, Device, DuplexTransport,
    Endpoint, Error, ErrorKind, Frozen, GidQuery, Held, Mtu, Pool, ProtectionDomain, QpOptions,
    QpState, QueuePair, Rc, RcPath, RemoteMemory, Retired, SendTransport, SharedReceiveQueue,
    SharedRegion, Sink, SrqOptions, Uc, Ud, WcStatus, wr,
};
