//! Events for `tracing`, where the feature is on; nothing at all where it is off.

use crate::errno::Errno;

macro_rules! event {
    ($level:ident, $($what:tt)*) => {
        // A subscriber is the program's: if it panics, what is being destroyed or taken back is so to its end all the same.
        #[cfg(feature = "tracing")]
        let _ = std::panic::catch_unwind(|| tracing::$level!(target: "ibverbs", $($what)*));
    };
}

/// A device was opened.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn opened(device: &str) {
    event!(debug, device, "opened");
}

/// A queue pair is about to take a step, with these attributes (`enum ibv_qp_attr_mask`).
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn stepped(qp_num: u32, state: &str, attributes: u32) {
    event!(debug, qp_num, state, attributes, "modify");
}

/// A verb failed.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(crate) fn failed(verb: &str, errno: Errno, what: &str) {
    event!(debug, verb, errno = errno.0, what, "failed");
}

/// An object could not be destroyed.
pub(crate) fn leaked() {
    event!(
        error,
        "an object could not be destroyed: it is leaked, with all that it guards"
    );
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::errno::Errno;
    use crate::error::Error;

    /// Writes down the fields of each event.
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
    fn a_subscriber_that_panics_ends_nothing_in_the_middle() {
        let log = Log::default();
        let poisoned = log.clone();
        let poison = move || {
            let _locked = poisoned.0.lock().expect("log");
            panic!("on purpose");
        };
        std::thread::spawn(poison).join().expect_err("panics");
        let error = tracing::subscriber::with_default(log, || {
            Error::of_verb("ibv_dereg_mr", Errno(16), "rxe0")
        });
        assert_eq!(error.errno(), Some(Errno(16)));
    }

    #[test]
    fn a_verb_that_fails_is_an_event_with_its_errno() {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            Error::of_verb("ibv_reg_mr", Errno(12), "4096 bytes on rxe0")
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
