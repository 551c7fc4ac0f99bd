//! Events of the feature `tracing`. They compile to nothing without the feature.

use rdma_types::Errno;

macro_rules! event {
    ($level:ident, $($what:tt)*) => {
        // A subscriber is user code. If it panics, the current operation must still complete.
        #[cfg(feature = "tracing")]
        let _ = std::panic::catch_unwind(|| tracing::$level!(target: "ibverbs", $($what)*));
    };
}

/// Emitted after a device was opened.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn opened(device: &str) {
    event!(debug, device, "opened");
}

/// Emitted before a queue pair is modified, with the attribute mask (`enum ibv_qp_attr_mask`).
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn stepped(qp_num: u32, state: &str, attributes: u32) {
    event!(debug, qp_num, state, attributes, "modify");
}

/// Emitted when a verb failed.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn failed(verb: &str, errno: Errno, what: &str) {
    event!(debug, verb, errno = errno.0, what, "failed");
}

/// Emitted when an object could not be destroyed.
pub(crate) fn leaked() {
    event!(
        error,
        "an object could not be destroyed and was leaked with its memory"
    );
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::error::Errno;
    use crate::error::call_failed;

    /// Records the fields of each event.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<String>>);

    impl Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "ibverbs"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    impl Visit for Log {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0.lock().expect("log"), "{field}={value:?} ");
        }
    }

    #[test]
    fn panicking_subscriber_does_not_interrupt_operations() {
        let log = Log::default();
        let poisoned = log.clone();
        let poison = move || {
            let _locked = poisoned.0.lock().expect("log");
            panic!("on purpose");
        };
        std::thread::spawn(poison).join().expect_err("panics");
        let error = tracing::subscriber::with_default(log, || {
            call_failed("ibv_dereg_mr", Errno(16), "rxe0")
        });
        assert_eq!(error.errno(), Some(Errno(16)));
    }

    #[test]
    fn failed_verb_emits_event_with_errno() {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            call_failed("ibv_reg_mr", Errno(12), "4096 bytes on rxe0")
        });
        let text = log.0.lock().expect("log").clone();
        for part in [
            "failed",
            r#"verb="ibv_reg_mr""#,
            "errno=12",
            r#"what="4096 bytes on rxe0""#,
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
