//! The table of the counters of the ports.

use base::units::Size;
use maud::{Markup, html};

use super::NamedRun;
use crate::record::Outcome;
use crate::warning::cause;

/// Returns the table of the counters that show a cause; nothing if none increased.
pub(super) fn table(runs: &[NamedRun]) -> Markup {
    let mut rows: Vec<[String; 5]> = Vec::new();
    for run in runs {
        for record in &run.records.tests {
            let Outcome::Measured(m) = &record.outcome else {
                continue;
            };
            let test = format!("{} {}", record.test.name(), Size(m.spec.msg_size));
            let ends = m.each().flat_map(|m| {
                if m.has_one_port() {
                    vec![("both", &m.local, &m.local_stats)]
                } else {
                    vec![
                        ("client", &m.local, &m.local_stats),
                        ("server", &m.remote, &m.remote_stats),
                    ]
                }
            });
            for (end, connection, side) in ends {
                let Some(changes) = &side.port_counters else {
                    continue;
                };
                rows.extend(
                    cause::relevant_counters(changes)
                        .into_iter()
                        .map(|(name, by)| {
                            [
                                run.name.clone(),
                                test.clone(),
                                format!("{end}, {}", connection.device),
                                name.to_owned(),
                                by.to_string(),
                            ]
                        }),
                );
            }
        }
    }
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "Counters" }
                p { "Counters of the ports that show errors or congestion, and their increases during the tests. Other programs that used the ports add to them." }
                div.wide { table {
                    thead { tr {
                        th.text { "run" } th.text { "test" } th.text { "end" } th.text { "counter" } th { "increase" }
                    } }
                    tbody { @for [run, test, end, counter, by] in &rows { tr {
                        td.text { (run) } td.text { (test) } td.text { (end) } td.text { (counter) } td { (by) }
                    } } }
                } }
            }
        }
    }
}
