//! Short messages that libmlx5 copies from the completion to the address of the scatter entry
//! ("scatter to CQE"), as ConnectX delivers them by default.

mod pair;

use ibverbs::{
    CompletionQueue, ConnectedDuplexTransport, Context, CqOptions, GidIndex, Held, Hold,
    MemoryOptions, ProtectionDomain, QpOptions, QueuePair, Rc, RcPath, SharedReceiveQueue,
    SrqOptions, Uc, wr,
};
use pair::{REMOTE, open};

/// A queue pair that receives messages, with its shared receive queue if it has one.
enum Receiver<T: ConnectedDuplexTransport> {
    Qp(QueuePair<T>),
    Srq(QueuePair<T>, SharedReceiveQueue),
}

struct Setup<T: ConnectedDuplexTransport> {
    sender: QueuePair<T>,
    receiver: Receiver<T>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl<T: ConnectedDuplexTransport> Setup<T> {
    fn new(context: &Context, options: QpOptions, shares: bool) -> Self {
        let pd = context.alloc_pd().expect("domain");
        let cq = context.create_cq(CqOptions::new().depth(16)).expect("cq");
        let options = options.max_inline_data(64);
        let mut sender = pd.create_qp::<T>(&cq, &cq, options).expect("sender");
        let mut receiver = if shares {
            let addresses = options.device_addresses;
            // The option of the shared receive queue applies to its queue pairs.
            let options = options.device_addresses(false);
            let srq = SrqOptions::new().device_addresses(addresses);
            let srq = pd.create_srq(srq).expect("srq");
            let qp = pd.create_qp_with_srq::<T>(&cq, &cq, &srq, options);
            Receiver::Srq(qp.expect("receiver"), srq)
        } else {
            Receiver::Qp(pd.create_qp::<T>(&cq, &cq, options).expect("receiver"))
        };
        let mtu = context.query_port(1).expect("port 1").active_mtu;
        let path = RcPath::new(1, GidIndex(0), mtu).access(REMOTE);
        let (Receiver::Qp(qp) | Receiver::Srq(qp, _)) = &mut receiver;
        for qp in [&mut sender, &mut *qp] {
            qp.init(&path).expect("INIT");
        }
        let to_sender = sender.endpoint(&path).expect("endpoint");
        let to_receiver = qp.endpoint(&path).expect("endpoint");
        sender.connect(&path, &to_receiver).expect("RTS");
        qp.connect(&path, &to_sender).expect("RTS");
        Self {
            sender,
            receiver,
            cq,
            pd,
        }
    }

    /// Sends a message to held memory. Its completion is in the queue when this returns.
    fn send<M: Hold>(&mut self, memory: &M, message: &[u8])
    where
        Held<M>: wr::RecvPayload,
    {
        match &mut self.receiver {
            Receiver::Qp(qp) => {
                let held = qp.hold(memory).expect("held");
                qp.post_recv(wr::recv(held)).expect("receive");
            }
            Receiver::Srq(_, srq) => {
                let held = srq.hold(memory).expect("held");
                srq.post_recv(wr::recv(held)).expect("receive");
            }
        }
        let send = wr::send(wr::Inline(message)).signaled(false);
        self.sender.post_send(send).expect("send");
        nic_model::settle();
    }

    /// Polls the completion of the message.
    fn poll(&mut self, length: usize) {
        let completion = self.cq.poll_one().expect("poll").expect("a completion");
        let retired = match &mut self.receiver {
            Receiver::Qp(qp) => qp.retire(completion).expect("in flight"),
            Receiver::Srq(_, srq) => srq.retire(completion).expect("in flight"),
        };
        retired.check().expect("success");
        assert_eq!(retired.received_len(), length);
    }
}

/// Returns `true` if a message of this length is copied when its completion is polled.
fn is_copied<T: ConnectedDuplexTransport>(options: QpOptions, shares: bool, length: usize) -> bool {
    let (context, _alone) = open();
    let mut setup = Setup::<T>::new(&context, options, shares);
    let message = vec![7; length];
    let region = setup.pd.shared(64, REMOTE).expect("region");
    let mut bytes = vec![0; length];
    setup.send(&region, &message);
    region.read(0, &mut bytes).expect("in range");
    let is_copied = bytes != message;
    setup.poll(length);
    region.read(0, &mut bytes).expect("in range");
    assert_eq!(bytes, message);
    is_copied
}

#[test]
fn the_completion_has_a_short_message_unless_that_is_turned_off() {
    let (on, off) = (QpOptions::new(), QpOptions::new().device_addresses(true));
    for classic_only in [false, true] {
        let [on, off] = [on, off].map(|options| options.classic_only(classic_only));
        for (length, expected) in [(1, true), (32, true), (33, false)] {
            assert_eq!(is_copied::<Rc>(on, false, length), expected, "{length}");
            assert_eq!(is_copied::<Uc>(on, false, length), expected, "{length}");
            assert!(!is_copied::<Rc>(off, false, length), "{length}");
            assert!(!is_copied::<Uc>(off, false, length), "{length}");
            // libmlx5 frees the entry of a shared receive queue before it copies.
            assert!(!is_copied::<Rc>(on, true, length), "{length}");
            assert!(!is_copied::<Rc>(off, true, length), "{length}");
        }
    }
}

/// The attack: the peer's 8 bytes would be written to an address of this process.
fn receives_at_device_addresses<T: ConnectedDuplexTransport>(classic_only: bool, shares: bool) {
    let (context, _alone) = open();
    let options = QpOptions::new().classic_only(classic_only);
    let mut setup = Setup::<T>::new(&context, options.device_addresses(true), shares);
    let message = b"8 bytes.";
    let mut bytes = [0; 8];
    let zero_based = MemoryOptions::new().zero_based(true);
    let region = setup.pd.shared_with(4096, REMOTE, zero_based);
    let region = region.expect("region");
    setup.send(&region, message);
    setup.poll(message.len());
    region.read(0, &mut bytes).expect("in range");
    assert_eq!(&bytes, message);
    let memory = context.alloc_dm(64, 0).expect("device memory");
    let region = setup.pd.reg_dm(&memory, 0, 64, REMOTE).expect("region");
    setup.send(&region, message);
    setup.poll(message.len());
    let mut bytes = [0; 8];
    memory.read(0, &mut bytes).expect("in range");
    assert_eq!(&bytes, message);
}

#[test]
fn messages_arrive_at_addresses_that_the_process_does_not_have() {
    for classic_only in [false, true] {
        for shares in [false, true] {
            receives_at_device_addresses::<Rc>(classic_only, shares);
        }
        receives_at_device_addresses::<Uc>(classic_only, false);
    }
}
