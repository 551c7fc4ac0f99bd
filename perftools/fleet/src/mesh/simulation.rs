//! A simulated transport for tests of large meshes.

use std::collections::HashMap;

use base::histogram::Percentiles;

use super::cell::{CellCounters, CellDetail, CellFigure};
use super::coordinator::Transport;
use super::endpoint::Endpoint;
use super::record::MeshTest;
use super::schedule::Pair;

/// Bandwidth of a healthy pair, in bytes per second.
const BANDWIDTH: f64 = 12.5e9;
/// Latency of a healthy pair, in nanoseconds.
const LATENCY: f64 = 2000.0;
/// Largest deviation of a healthy figure.
const NOISE: f64 = 0.02;

/// A network whose hosts, ports and links have given speeds.
#[derive(Debug, Default)]
pub(super) struct Simulation {
    /// Speed of an endpoint as the client and as the server; 1 is healthy, 0 is down.
    pub(super) endpoints: HashMap<u32, [f64; 2]>,
    /// Speed of the path of a pair.
    pub(super) links: HashMap<Pair, f64>,
    /// Speed of the path of a pair while other tests run.
    pub(super) loaded: HashMap<Pair, f64>,
}

impl Simulation {
    fn speed(&self, pair: Pair, alone: bool) -> f64 {
        let end = |id: u32, side: usize| self.endpoints.get(&id).map_or(1.0, |e| e[side]);
        let loaded = if alone { None } else { self.loaded.get(&pair) };
        let link = *loaded.or(self.links.get(&pair)).unwrap_or(&1.0);
        end(pair.from, 0).min(end(pair.to, 1)).min(link)
    }
}

/// Returns a number from -1 to 1 that depends only on the pair.
fn noise(pair: Pair) -> f64 {
    let mut x =
        (u64::from(pair.from) << 32 | u64::from(pair.to)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    f64::from((x >> 40) as u32) / f64::from(1 << 23) - 1.0
}

impl Transport for Simulation {
    fn run(
        &self,
        test: &MeshTest,
        pairs: &[Pair],
        _common_start: bool,
        on_cell: &mut dyn FnMut(Pair, CellFigure, Option<Box<CellDetail>>),
    ) {
        for pair in pairs {
            let speed = self.speed(*pair, pairs.len() == 1);
            let factor = 1.0 + NOISE * noise(*pair);
            if speed == 0.0 {
                on_cell(
                    *pair,
                    CellFigure::Failed("cannot reach the server".into()),
                    None,
                );
                continue;
            }
            let detail = CellDetail {
                percentiles: test.spec.test.is_latency().then_some(Percentiles {
                    samples: 1_000_000,
                    min: 1900,
                    mean: 2050.5,
                    p50: 2000,
                    p90: 2100,
                    p99: 2500,
                    p99_9: 3000,
                    p99_99: 9000,
                    max: 20_000,
                }),
                counters: Some(CellCounters {
                    sent: 1_000_000,
                    received: 1_000_000,
                    ..CellCounters::default()
                }),
                directions: None,
                port_counters: None,
                exceeded: Vec::new(),
                warnings: Vec::new(),
            };
            let figure = if test.spec.test.is_latency() {
                CellFigure::Latency((LATENCY * factor / speed).round())
            } else {
                CellFigure::Bandwidth((BANDWIDTH * factor * speed).round())
            };
            on_cell(*pair, figure, Some(Box::new(detail)));
        }
    }
}

/// Returns endpoints on hosts `h0`, `h1` and so on, with this number of devices each.
pub(super) fn endpoints(hosts: u32, devices: u32) -> Vec<Endpoint> {
    let mut all = Vec::new();
    for host in 0..hosts {
        for device in 0..devices {
            let host = format!("h{host}");
            let (name, device) = if devices == 1 {
                (host.clone(), None)
            } else {
                let device = format!("mlx5_{device}");
                (format!("{host}/{device}"), device.parse().ok())
            };
            all.push(Endpoint {
                name,
                host,
                port: 19765,
                device,
                link: None,
            });
        }
    }
    all
}
