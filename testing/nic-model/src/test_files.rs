//! Files that tests read to inspect or change the model. They work in any process that has it.
//!
//! | file | effect |
//! |---|---|
//! | `/dev/infiniband/nic-model/objects` | counts the objects, in the format of `rdma resource show` |
//! | `/dev/infiniband/nic-model/descriptors` | counts the file descriptors that only the model uses |
//! | `/dev/infiniband/nic-model/link-down` | takes the link of the port down |
//! | `/dev/infiniband/nic-model/link-up` | takes it up again |

use crate::model::Model;
use crate::uverbs::objects::Kind;

/// Directory of the control files.
const DIRECTORY: &[u8] = b"/dev/infiniband/nic-model/";

/// Returns the name of a control file, or of a file of sysfs with the state of the port.
pub(crate) fn file_name(path: &[u8]) -> Option<&[u8]> {
    if path.starts_with(b"/sys/class/infiniband/") && path.ends_with(b"/ports/1/state") {
        return Some(b"state");
    }
    path.strip_prefix(DIRECTORY)
}

/// Reads a control file: returns its content, after its effect. `None` if there is no such file.
pub(crate) fn read(model: &mut Model, name: &[u8]) -> Option<String> {
    match name {
        b"objects" => Some(objects(model)),
        b"descriptors" => Some(descriptors(model)),
        b"state" => Some(port_state(model).to_owned()),
        b"link-down" => Some(set_link(model, false)),
        b"link-up" => Some(set_link(model, true)),
        _ => None,
    }
}

fn objects(model: &Model) -> String {
    let mut counts = [0_u32; 6];
    for kind in model.objects() {
        let index = match kind {
            Kind::Pd { .. } => 0,
            Kind::Cq { .. } => 1,
            Kind::Qp { .. } | Kind::OpenedQp { .. } => 2,
            Kind::Mr { .. } | Kind::Mw { .. } => 3,
            Kind::Srq { .. } => 5,
            Kind::Ah { .. }
            | Kind::Xrcd { .. }
            | Kind::Dm { .. }
            | Kind::Dmah
            | Kind::CompCntr { .. } => continue,
        };
        counts[index] += 1;
    }
    counts[4] = model.contexts();
    let [pd, cq, qp, mr, ctx, srq] = counts;
    let cm = model.cm.count();
    let device = model.options.device.name();
    format!("0: {device}: pd {pd} cq {cq} qp {qp} cm_id {cm} mr {mr} ctx {ctx} srq {srq}\n")
}

/// Counts the file descriptors that a process has only because of the model.
fn descriptors(model: &Model) -> String {
    let shared = &model.shared;
    let count =
        shared.channels.descriptors() + shared.network.descriptors() + model.cm.descriptors();
    format!("{count}\n")
}

fn set_link(model: &mut Model, up: bool) -> String {
    model.set_link(up);
    String::new()
}

/// Returns the state of the port as sysfs shows it.
fn port_state(model: &Model) -> &'static str {
    if model.shared.network.link_up {
        "4: ACTIVE\n"
    } else {
        "1: DOWN\n"
    }
}
