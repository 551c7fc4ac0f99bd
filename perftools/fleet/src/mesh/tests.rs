//! Tests of the coordinator over a simulated network.

use std::time::Instant;

use base::schema::assert_up_to_date;
use measure::spec::Spec;
use measure::spec::test::Test;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

use super::cell::CellFigure;
use super::compare::compare;
use super::coordinator::{NoProgress, find_outliers, run};
use super::outlier::{CellState, Confirmation, Location, Outlier, SlowDirection, SlowLimits};
use super::record::{MeshRecord, MeshTest, RecordFile};
use super::schedule::Pair;
use super::simulation::{Simulation, endpoints};
use crate::mesh::schedule::MeshPattern;

pub(super) fn mesh_test(test: Test) -> MeshTest {
    MeshTest {
        label: test.name().to_owned(),
        spec: Spec::new(test),
    }
}

fn record(pattern: MeshPattern, hosts: u32, devices: u32, tests: &[Test]) -> MeshRecord {
    let tests = tests.iter().map(|t| mesh_test(*t)).collect();
    MeshRecord::new(
        pattern,
        SlowLimits::default(),
        endpoints(hosts, devices),
        tests,
    )
}

fn measure(record: &mut MeshRecord, network: &Simulation) -> Vec<Outlier> {
    run(record, None, network, &mut NoProgress).unwrap();
    find_outliers(record, network, &mut NoProgress)
}

fn host(name: &str) -> Location {
    Location::Host {
        host: name.to_owned(),
        ports: vec![name.to_owned()],
    }
}

#[test]
fn healthy_meshes_have_no_outliers() {
    for (n, devices) in [(2, 1), (3, 1), (10, 1), (6, 2)] {
        let mut record = record(MeshPattern::Pairs, n, devices, &[Test::RcBw, Test::RcLat]);
        assert_eq!(measure(&mut record, &Simulation::default()), []);
        // Two ports of one host are not measured with each other.
        let pairs = n * devices * (n - 1) * devices;
        assert_eq!(record.cells.list.len(), 2 * pairs as usize);
    }
}

#[test]
fn slow_hosts_ports_and_links_are_told_apart() {
    let slow_link = Pair::new(1, 6);
    for n in [8, 9, 64] {
        let network = Simulation {
            endpoints: [(3, [0.4, 0.4]), (5, [1.0, 0.2])].into(),
            links: [(slow_link, 0.3)].into(),
            ..Simulation::default()
        };
        let mut record = record(MeshPattern::Pairs, n, 1, &[Test::RcBw, Test::RcLat]);
        let outliers = measure(&mut record, &network);
        for test in ["rc_bw", "rc_lat"] {
            let found: Vec<_> = outliers.iter().filter(|o| o.test == test).collect();
            let locations: Vec<_> = found
                .iter()
                .map(|o| (o.location.clone(), o.direction))
                .collect();
            let link = Location::Link {
                from: "h1".into(),
                to: "h6".into(),
            };
            assert_eq!(locations.len(), 3, "{n} {test}: {locations:?}");
            assert!(
                locations.contains(&(host("h3"), SlowDirection::Both)),
                "{locations:?}"
            );
            assert!(
                locations.contains(&(host("h5"), SlowDirection::To)),
                "{locations:?}"
            );
            assert!(
                locations.contains(&(link, SlowDirection::Both)),
                "{locations:?}"
            );
            for outlier in found {
                assert_eq!(outlier.confirmation, Confirmation::Confirmed, "{outlier:?}");
                assert!(!outlier.retests.is_empty() && outlier.state == CellState::Slow);
            }
        }
    }
}

#[test]
fn dead_host_costs_only_its_own_cells() {
    let network = Simulation {
        endpoints: [(2, [0.0, 0.0])].into(),
        ..Simulation::default()
    };
    let mut record = record(MeshPattern::Pairs, 7, 1, &[Test::RcBw]);
    let outliers = measure(&mut record, &network);
    let failed = |c: &&super::cell::Cell| matches!(c.figure, CellFigure::Failed(_));
    assert_eq!(record.cells.list.iter().filter(failed).count(), 12);
    assert_eq!(outliers.len(), 1);
    assert_eq!(
        (&outliers[0].location, outliers[0].state),
        (&host("h2"), CellState::Failed)
    );
    assert!(
        outliers[0]
            .text
            .contains("host h2, 12 pairs: rc_bw: failed: cannot reach"),
        "{}",
        outliers[0].text
    );
}

/// A fault of all hosts, of all but one, of half of them, of one host, of one direction, and of
/// one adapter of eight.
#[test]
fn a_fault_is_reported_once_for_each_place_it_has() {
    let dead = |ids: &[u32]| ids.iter().map(|id| (*id, [0.0, 0.0])).collect();
    let texts = |devices, endpoints| {
        let network = Simulation {
            endpoints,
            ..Simulation::default()
        };
        let outliers = measure(
            &mut record(MeshPattern::Pairs, 8, devices, &[Test::RcBw]),
            &network,
        );
        let subject = |outlier: &Outlier| {
            let part = outlier.text.split(": ").next();
            part.unwrap_or_default().to_owned()
        };
        outliers.iter().map(subject).collect::<Vec<_>>()
    };
    assert_eq!(texts(1, dead(&[0, 1, 2, 3, 4, 5, 6, 7])), ["all hosts"]);
    // Each pair has a host with the fault, so the cells do not show the one without.
    assert_eq!(texts(1, dead(&[0, 1, 2, 4, 5, 6, 7])), ["all hosts"]);
    let mut half = texts(1, dead(&[0, 1, 2, 3]));
    half.sort();
    let hosts: Vec<&str> = half.iter().filter_map(|text| text.get(..7)).collect();
    assert_eq!(hosts, ["host h0", "host h1", "host h2", "host h3"]);
    assert_eq!(texts(1, dead(&[5])), ["host h5, 14 pairs"]);
    let one_direction = [(5, [0.4, 1.0])].into();
    assert_eq!(texts(1, one_direction), ["host h5, as the client, 7 pairs"]);
    let adapter = texts(8, dead(&[19]));
    assert_eq!(adapter, ["port h2/mlx5_3 of host h2, 112 pairs"]);
}

#[test]
fn repeated_measurements_find_load_and_ends() {
    let pair = Pair::new(0, 1);
    let mut network = Simulation {
        loaded: [(pair, 0.5)].into(),
        ..Simulation::default()
    };
    let outliers = measure(
        &mut record(MeshPattern::Pairs, 8, 1, &[Test::RcBw]),
        &network,
    );
    assert_eq!(
        outliers[0].confirmation,
        Confirmation::OnlyUnderLoad,
        "{outliers:?}"
    );
    // Between the rounds and the repeated measurements, the client becomes slow.
    let mut record = record(MeshPattern::Pairs, 8, 1, &[Test::RcBw]);
    run(&mut record, None, &network, &mut NoProgress).unwrap();
    network.endpoints.insert(0, [0.5, 1.0]);
    let outliers = find_outliers(&record, &network, &mut NoProgress);
    assert_eq!(
        outliers[0].confirmation,
        Confirmation::FollowsFrom,
        "{outliers:?}"
    );
    // The client's other cell was good at first.
    record.outliers = outliers;
    let text = super::text::matrix(&record, 0);
    let cells = text.matches('?').count();
    assert_eq!(cells, 2, "one cell and the legend: {text}");
    assert!(
        text.ends_with("? slow or failed when measured again\n"),
        "{text}"
    );
}

#[test]
fn the_remedy_of_a_failure_is_that_of_its_error() {
    let network = Simulation {
        endpoints: [(2, [0.0, 0.0])].into(),
        ..Simulation::default()
    };
    let mut record = record(MeshPattern::Pairs, 4, 1, &[Test::RcBw]);
    run(&mut record, None, &network, &mut NoProgress).unwrap();
    let help = |record: &MeshRecord| {
        let outliers = find_outliers(record, &network, &mut NoProgress);
        (outliers[0].text.clone(), outliers[0].help.clone())
    };
    assert!(help(&record).1.starts_with("check that host h2 is up"));
    for cell in &mut record.cells.list {
        if matches!(cell.figure, CellFigure::Failed(_)) {
            cell.figure = CellFigure::Failed("no token; help: set --token-file".into());
        }
    }
    let (text, help) = help(&record);
    assert!(
        text.ends_with("failed: no token; fails alone as well"),
        "{text}"
    );
    assert_eq!(help, "set --token-file");
}

/// Returns the suspects of a mesh in which some endpoints and links have a speed: `all`, the
/// name of a host or port with its direction, or `FROM-TO`.
fn suspects_at(speed: f64, hosts: [u32; 2], faulty: &[(u32, [bool; 2])], cut: &[Pair]) -> String {
    let factor = |is_faulty: bool| if is_faulty { speed } else { 1.0 };
    let network = Simulation {
        endpoints: faulty
            .iter()
            .map(|(id, ways)| (*id, ways.map(factor)))
            .collect(),
        links: cut.iter().map(|pair| (*pair, speed)).collect(),
        ..Simulation::default()
    };
    let mut record = record(MeshPattern::Pairs, hosts[0], hosts[1], &[Test::RcBw]);
    let name = |outlier: Outlier| match outlier.location {
        Location::All => "all".to_owned(),
        Location::Host { host: name, .. } | Location::Port { port: name, .. } => {
            let way = match outlier.direction {
                SlowDirection::Both => "",
                SlowDirection::From => " from",
                SlowDirection::To => " to",
            };
            name + way
        }
        Location::Link { from, to } => format!("{from}-{to}"),
    };
    let mut names: Vec<_> = measure(&mut record, &network)
        .into_iter()
        .map(name)
        .collect();
    names.sort_unstable();
    names.join(", ")
}

#[test]
fn each_pattern_of_faults_has_its_suspects() {
    let hosts = |count| (0..count).map(|id| (id, [true; 2])).collect::<Vec<_>>();
    let half: Vec<Pair> = (0..2)
        .flat_map(|a| (2..4).flat_map(move |b| [Pair::new(a, b), Pair::new(b, a)]))
        .collect();
    let link = [Pair::new(1, 6)];
    let of_eight = [8, 1];
    // What is slow is compared with the best path. No path is better if at most one host is.
    for (size, faulty, cut, down, slow) in [
        (of_eight, hosts(8), &[][..], "all", ""),
        (of_eight, hosts(7), &[], "all", ""),
        (
            of_eight,
            hosts(6),
            &[],
            "h0, h1, h2, h3, h4, h5",
            "h0, h1, h2, h3, h4, h5",
        ),
        (of_eight, hosts(4), &[], "h0, h1, h2, h3", "h0, h1, h2, h3"),
        (of_eight, hosts(1), &[], "h0", "h0"),
        (
            of_eight,
            vec![(3, [true, false])],
            &[],
            "h3 from",
            "h3 from",
        ),
        (of_eight, vec![(3, [false, true])], &[], "h3 to", "h3 to"),
        (of_eight, vec![], &link, "h1-h6", "h1-h6"),
        // The hosts of each half reach each other.
        ([4, 1], vec![], &half, CUT, CUT),
        ([3, 8], vec![(13, [true; 2])], &[], "h1/mlx5_5", "h1/mlx5_5"),
        ([3, 2], hosts(2), &[], "h0", "h0"),
    ] {
        for (speed, expected) in [(0.0, down), (0.5, slow)] {
            let found = suspects_at(speed, size, &faulty, cut);
            assert_eq!(found, expected, "{size:?} {faulty:?} {cut:?} at {speed}");
        }
    }
}

const CUT: &str = "h0-h2, h0-h3, h1-h2, h1-h3, h2-h0, h2-h1, h3-h0, h3-h1";

#[test]
fn tests_with_a_common_start_have_sums_and_fairness() {
    let network = Simulation {
        endpoints: [(1, [0.5, 1.0])].into(),
        ..Simulation::default()
    };
    let mut record = record(MeshPattern::Incast, 4, 1, &[Test::RcBw]);
    run(&mut record, None, &network, &mut NoProgress).unwrap();
    assert_eq!(record.groups.len(), 4);
    let group = &record.groups[0];
    assert_eq!(
        (group.shared.as_deref(), group.completed, group.failed),
        (Some("h0"), 3, 0)
    );
    assert!((30e9..33e9).contains(&group.sum.unwrap()), "{group:?}");
    assert!((0.9..0.95).contains(&group.fairness.unwrap()), "{group:?}");
}

#[test]
fn the_file_of_a_record_is_valid_after_each_cell() {
    let dir = TempDir::new();
    let path = dir.path().join("mesh.json");
    let read = || MeshRecord::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let network = Simulation::default();
    let mut record = record(MeshPattern::Pairs, 6, 1, &[Test::RcBw, Test::RcLat]);
    let mut file = RecordFile::create(&path, &record).unwrap();
    assert_eq!(read(), record);
    run(&mut record, Some(&mut file), &network, &mut NoProgress).unwrap();
    assert_eq!(read().cells, record.cells);
    file.finish(&record).unwrap();
    assert_eq!(read(), record);
}

#[test]
fn records_of_other_programs_are_rejected() {
    for text in ["", "{}", "nonsense", r#"{"schema":1,"tests":[]}"#] {
        assert!(!MeshRecord::is_likely(text), "{text}");
        let error = MeshRecord::parse(text).unwrap_err().to_string();
        assert!(
            error.contains("not a record of rperf mesh"),
            "{text}: {error}"
        );
    }
    let mut record = record(MeshPattern::Ring, 3, 1, &[Test::RcBw]);
    run(&mut record, None, &Simulation::default(), &mut NoProgress).unwrap();
    let mut text = Vec::new();
    record.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(MeshRecord::is_likely(&text));
    assert_eq!(MeshRecord::parse(&text).unwrap(), record);
    let error = MeshRecord::parse(&text.replace("\"from\":\"h0\"", "\"from\":\"h9\"")).unwrap_err();
    assert!(error.to_string().contains("`h9`"), "{error}");
}

#[test]
fn meshes_are_compared_cell_by_cell() {
    let mut old = record(MeshPattern::Pairs, 4, 1, &[Test::RcBw, Test::RcLat]);
    run(&mut old, None, &Simulation::default(), &mut NoProgress).unwrap();
    let network = Simulation {
        links: [(Pair::new(2, 1), 0.5)].into(),
        endpoints: [(3, [0.0, 1.0])].into(),
        ..Simulation::default()
    };
    let mut new = record(MeshPattern::Pairs, 4, 1, &[Test::RcLat, Test::RcBw]);
    run(&mut new, None, &network, &mut NoProgress).unwrap();
    assert_eq!(compare(&old, &old, 0.05).changes, []);
    let result = compare(&old, &new, 0.05);
    // A link, and the three cells of an endpoint that fails, in both tests.
    assert_eq!(
        (result.compared, result.worse(), result.changes.len()),
        (24, 8, 8)
    );
    let text = super::compare::render(&result);
    assert_contains(&text, &["rc_bw h2 → h1: ", "(50.0 % WORSE)"]);
    assert!(text.contains("→ failed (100.0 % WORSE)"), "{text}");
    assert_eq!(compare(&new, &old, 0.05).worse(), 0);
}

#[test]
fn checked_in_schema_of_meshes_is_up_to_date() {
    assert_up_to_date::<MeshRecord>(
        "rperf-mesh",
        super::record::SCHEMA,
        "Output of rperf mesh --json",
    );
}

#[test]
fn sixty_thousand_cells_are_recorded_and_judged() {
    measure_large_mesh(250);
}

/// It prints the times and the memory, which `docs/cluster.md` quotes: `cargo test --release -p
/// perftools-fleet --lib a_million -- --ignored --nocapture`.
#[test]
#[ignore = "takes half a minute without optimization: run by name"]
fn a_million_cells_are_recorded_and_judged() {
    measure_large_mesh(1000);
}

/// Measures a simulated mesh with a slow host, a dead one and a slow link, writes its record and
/// its page, and reads the record again.
fn measure_large_mesh(hosts: u32) {
    let (slow, dead) = (hosts / 13, hosts / 2);
    let network = Simulation {
        endpoints: [(slow, [0.5, 0.5]), (dead, [0.0, 0.0])].into(),
        links: [(Pair::new(3, hosts - 99), 0.3)].into(),
        ..Simulation::default()
    };
    let dir = TempDir::new();
    let path = dir.path().join("mesh.json");
    let begin = Instant::now();
    let mut record = record(MeshPattern::Pairs, hosts, 1, &[Test::RcBw]);
    let mut file = RecordFile::create(&path, &record).unwrap();
    run(&mut record, Some(&mut file), &network, &mut NoProgress).unwrap();
    let ran = begin.elapsed();
    record.outliers = find_outliers(&record, &network, &mut NoProgress);
    let judged = begin.elapsed().saturating_sub(ran);
    file.finish(&record).unwrap();
    assert_eq!(record.cells.list.len(), (hosts * (hosts - 1)) as usize);
    let found: Vec<_> = record.outliers.iter().map(|o| o.location.clone()).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        [slow, dead].map(|id| found.contains(&host(&format!("h{id}")))) == [true, true],
        "{found:?}"
    );
    let page = super::html::page(&record);
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(MeshRecord::is_likely(&text));
    let begin = Instant::now();
    assert!(MeshRecord::parse(&text).unwrap() == record);
    println!(
        "{hosts} hosts: run and record {ran:?}, outliers {judged:?}, read {:?}, file {} MB, peak memory {} MB",
        begin.elapsed(),
        text.len() >> 20,
        peak_memory() >> 10,
    );
}

/// Returns the largest memory of this process so far, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_mesh_without_results_has_no_range() {
    let record = record(MeshPattern::Pairs, 3, 1, &[Test::RcBw]);
    let text = super::text::matrix(&record, 0);
    assert!(text.starts_with("rc_bw: no results, rows are"), "{text}");
}
