//! Events of failed verbs.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::error::Errno;
use crate::error::call_failed;

/// Calls a function for each event.
struct OnEvent<F>(F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for OnEvent<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ibverbs"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of the recorded events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    /// Returns a subscriber that records the fields of each event.
    fn subscriber(&self) -> impl Subscriber + Send + Sync {
        let log = self.clone();
        OnEvent(move |event: &Event<'_>| event.record(&mut log.clone()))
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0.lock().expect("log"), "{field}={value:?} ");
    }
}

/// A panic payload whose destructor panics.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_panicking_panic_payload_does_not_interrupt_operations() {
    let panicking = OnEvent(|_: &Event<'_>| std::panic::panic_any(PanicsOnDrop));
    let error = tracing::subscriber::with_default(panicking, || {
        call_failed("ibv_dereg_mr", Errno(16), "rxe0")
    });
    assert_eq!(error.errno(), Some(Errno(16)));
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
    let error = tracing::subscriber::with_default(log.subscriber(), || {
        call_failed("ibv_dereg_mr", Errno(16), "rxe0")
    });
    assert_eq!(error.errno(), Some(Errno(16)));
}

#[test]
fn failed_verb_emits_event_with_errno() {
    let log = Log::default();
    tracing::subscriber::with_default(log.subscriber(), || {
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
