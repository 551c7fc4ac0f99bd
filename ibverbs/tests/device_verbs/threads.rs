//! Send and Sync of device objects, and concurrent queries.

use ibverbs::{
    Context, Device, DeviceAttr, Error, GidQuery, Guid, Pkey, PortAttr,
    caps::DeviceAttrEx,
    event::{AsyncEvent, AsyncEvents, EventSource},
    gid::{GidChoice, GidEntry, RoceConfig},
    port::{LinkRate, PkeyEntry},
};
use static_assertions::assert_impl_all;

use crate::lab::devices;

assert_impl_all!(Device: Send, Sync, Clone);
assert_impl_all!(Context: Send, Sync, Clone);
assert_impl_all!(AsyncEvents: Send, Sync, Clone);
assert_impl_all!(AsyncEvent: Send, Sync, Copy);
assert_impl_all!(EventSource: Send, Sync, Copy);
assert_impl_all!(DeviceAttr: Send, Sync);
assert_impl_all!(DeviceAttrEx: Send, Sync);
assert_impl_all!(PortAttr: Send, Sync);
assert_impl_all!(LinkRate: Send, Sync, Copy);
assert_impl_all!(Guid: Send, Sync, Copy);
assert_impl_all!(GidEntry: Send, Sync, Copy);
assert_impl_all!(GidQuery: Send, Sync, Copy);
assert_impl_all!(GidChoice: Send, Sync);
assert_impl_all!(Pkey: Send, Sync, Copy);
assert_impl_all!(PkeyEntry: Send, Sync, Copy);
assert_impl_all!(RoceConfig: Send, Sync);
assert_impl_all!(Error: Send, Sync);

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn threads_query_one_context_concurrently() {
    for context in devices() {
        println!("device: {}", context.device_name());
        let (attr, gids) = (
            context.query_device_ex().expect("device"),
            context.gids(1).expect("GID table"),
        );
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(context.query_device_ex().expect("device"), attr);
                        assert_eq!(context.gids(1).expect("GID table"), gids);
                        context.query_port(1).expect("port");
                        assert_eq!(
                            context.device().open().expect("open again").device_name(),
                            context.device_name()
                        );
                    }
                });
            }
        });
        assert_eq!(ibverbs::leaked_objects(), 0);
    }
}
