//! The environment of a run: time, hosts, devices and the command line.

use base::units::{Size, Style};
use measure::spec::connection::ConnectionInfo;

use super::json::Records;
use super::record::{Measured, Outcome};

/// Text of an unknown value.
const UNKNOWN: &str = "-";

/// Returns the names and values of the environment, from the first measured test. All runs
/// have the same names in the same order.
pub(super) fn of_records(records: &Records) -> Vec<(&'static str, String)> {
    let measured = records
        .tests
        .iter()
        .find_map(|record| match &record.outcome {
            Outcome::Measured(m) => Some((record, m.as_ref())),
            _ => None,
        });
    let text = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.to_owned());
    let record = measured.map(|(record, _)| record);
    let host = measured.and_then(|(_, m)| m.local_host.as_ref());
    let program = host.map(|host| format!("rperf {}", host.rperf));
    let mut all = vec![
        ("started", text(record.and_then(|r| r.started.clone()))),
        ("program", text(program)),
        ("command", text(record.and_then(|r| r.command.clone()))),
    ];
    let m = measured.map(|(_, m)| m);
    let [client, server] = [
        end(m, |m| (&m.local_host, &m.local)),
        end(m, |m| (&m.remote_host, &m.remote)),
    ];
    let names = [
        ("client", "server"),
        ("client kernel", "server kernel"),
        ("client CPU", "server CPU"),
        ("client path", "server path"),
        ("client driver", "server driver"),
        ("client firmware", "server firmware"),
        ("client link", "server link"),
        ("client MTU", "server MTU"),
    ];
    for ((client_name, server_name), (client, server)) in
        names.into_iter().zip(client.into_iter().zip(server))
    {
        all.extend([(client_name, client), (server_name, server)]);
    }
    all
}

/// Returns the values of one end.
fn end(
    m: Option<&Measured>,
    select: impl FnOnce(&Measured) -> (&Option<host::host_conf::HostConf>, &ConnectionInfo),
) -> [String; 8] {
    let Some((host, connection)) = m.map(select) else {
        return std::array::from_fn(|_| UNKNOWN.to_owned());
    };
    let hardware = &connection.hardware;
    #[allow(clippy::cast_precision_loss)] // A rate below 2^53.
    let link_rate = hardware.link_rate.map(|bits| {
        let style = Style {
            bits: true,
            ..Style::default()
        };
        style.bandwidth(bits as f64 / 8.0).to_string()
    });
    let mtu = match (connection.mtu, connection.port_mtu) {
        (Some(path), Some(port)) if path != port => Some(format!("{path} bytes (port {port})")),
        (path, port) => path.or(port).map(|mtu| Size(mtu.into()).to_string()),
    };
    [
        host.as_ref().map(|host| host.node.clone()),
        host.as_ref().map(|host| host.os.clone()),
        host.as_ref().map(|host| host.cpu.clone()),
        Some(connection.to_string()),
        hardware.driver.clone(),
        hardware.firmware.clone(),
        link_rate,
        mtu,
    ]
    .map(|value| value.unwrap_or_else(|| UNKNOWN.to_owned()))
}
