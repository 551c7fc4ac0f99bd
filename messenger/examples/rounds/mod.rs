//! Shared by the benchmarks of the messenger: rounds of four programs in turn, their table, and
//! runs of `rperf`.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

/// Number of rounds.
pub(crate) const ROUNDS: usize = 7;
/// Number of programs. The last one is a messenger, and is compared with the others.
const PROGRAMS: usize = 4;

/// Results of the programs in each round.
#[derive(Default)]
pub(crate) struct Rounds(Vec<[f64; PROGRAMS]>);

impl Rounds {
    /// Runs the programs of a round. The order is reversed in every other round, so that drift
    /// affects all programs equally.
    pub(crate) fn add<E>(
        &mut self,
        round: usize,
        mut run: impl FnMut(usize) -> Result<f64, E>,
    ) -> Result<(), E> {
        let mut results = [0.0; PROGRAMS];
        let mut order = [0, 1, 2, 3];
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            results[at] = run(at)?;
        }
        self.0.push(results);
        Ok(())
    }

    /// Prints the medians of the rounds, and the medians of the ratios within a round with the
    /// smallest and the largest one.
    pub(crate) fn print(&self, device: &str, test: &str) {
        let sorted = |value: &dyn Fn(&[f64; PROGRAMS]) -> f64| {
            let mut values: Vec<f64> = self.0.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            (
                values[values.len() / 2],
                values[0],
                values[values.len() - 1],
            )
        };
        print!("| {device} | {test} |");
        for at in 0..PROGRAMS {
            match sorted(&|results| results[at]).0 {
                median if median.is_nan() => print!(" – |"),
                median => print!(" {median:.1} |"),
            }
        }
        for at in 0..PROGRAMS - 1 {
            match sorted(&|results| results[PROGRAMS - 1] / results[at]) {
                (median, ..) if median.is_nan() => print!(" – |"),
                (median, least, most) => print!(" {median:.2} ({least:.2}..{most:.2}) |"),
            }
        }
        println!();
    }
}

/// Prints the header of the table, with the name of the messenger.
pub(crate) fn print_header(messenger: &str) {
    println!(
        "| device | | TCP | rperf | rperf, own buffers | {messenger} | / TCP | / rperf | / own buffers |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
}

/// Returns the number of bytes of a stream, from the variable `MIB`. Default: 512 MiB.
pub(crate) fn stream_bytes() -> u64 {
    let mib = std::env::var("MIB").map_or(512, |mib| mib.parse().expect("a number of MiB"));
    mib << 20
}

/// Returns the latency in nanoseconds or the bandwidth in bytes per second of a test of rperf.
pub(crate) fn rperf(
    program: &str,
    device: &str,
    test: &str,
    size: usize,
    options: &[&str],
) -> Result<f64, Box<dyn Error>> {
    let size = size.to_string();
    let output = Command::new(program)
        .args(["--id", device, "-m", &size, "-t", "500ms", "--json", test])
        .args(options)
        .output()?;
    let json = String::from_utf8(output.stdout)?;
    let key = if test == "rc_lat" {
        "\"latency\": "
    } else {
        "\"bandwidth\": "
    };
    let summary = json.split_once("\"summary\"").ok_or("rperf failed")?.1;
    let value = summary.split_once(key).ok_or("no result of rperf")?.1;
    let end = value.find([',', '\n', '}']).ok_or("no result of rperf")?;
    Ok(value[..end].trim().parse()?)
}

pub(crate) fn micros_per_trip(began: Instant, trips: u32) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / f64::from(trips)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn megabytes_per_second(bytes: u64, began: Instant) -> f64 {
    bytes as f64 / 1e6 / began.elapsed().as_secs_f64()
}
