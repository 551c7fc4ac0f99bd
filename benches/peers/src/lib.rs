//! Counts the instructions per request of other crates, with the steps of the program
//! `instructions` of `benches`: one completion is polled and the next request is posted, on libmlx5
//! with a model of the adapter.
//!
//! Each crate has a program of its own, because one of them links wrappers under the names of the
//! functions of libibverbs.

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;

use nic_model::{Drive, Options};

/// The result of a step.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Requests of a batch.
pub const BATCH: usize = 32;
/// Message size in bytes.
pub const MESSAGE_LEN: usize = 8;
/// Iterations of a case.
pub const TIMES: u32 = 1000;
/// Requests that fit into each queue.
pub const DEPTH: u32 = 64;

/// Functions whose instructions callgrind counts.
pub const MEASURED: &str = "benches_peers::measured*";
/// Functions that these call, and whose instructions it does not count.
pub const NOT_MEASURED: &str = "benches_peers::peer_step*";

/// The verbs of a row of the table. Not every crate has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// `ibv_post_send` and `ibv_poll_cq`.
    Classic,
    /// `ibv_wr_*` and `ibv_poll_cq`.
    Extended,
    /// `ibv_wr_*`, and `ibv_start_poll` with timestamps.
    Timestamps,
}

/// A measured step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One completion is polled, and a message is sent.
    Send,
    /// [`BATCH`] completions are polled, and as many messages are sent together.
    Batch,
    /// One completion is polled, and a receive is posted.
    Receive,
}

impl Verbs {
    /// All verbs, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Classic, Self::Extended, Self::Timestamps];
}

impl Step {
    /// All steps, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Send, Self::Batch, Self::Receive];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Batch => "batch of 32",
            Self::Receive => "receive",
        }
    }

    /// Returns the number of requests of an iteration.
    pub fn requests(self) -> usize {
        if self == Self::Batch { BATCH } else { 1 }
    }
}

/// Two connected queue pairs of a crate: one sends, and the other receives.
pub trait Peer: Sized {
    /// The steps that the crate has.
    const STEPS: &[Step];

    /// Connects two queue pairs of `mlx5_0`.
    ///
    /// # Errors
    /// Fails if a verb fails.
    fn new() -> Result<Self>;

    /// Polls the sender's queue once, and checks the status of each completion. Returns their
    /// number.
    ///
    /// # Errors
    /// Fails if polling or a request failed.
    fn poll_sends(&mut self) -> Result<usize>;

    /// Like [`poll_sends`](Self::poll_sends), for the receiver's queue.
    ///
    /// # Errors
    /// Fails if polling or a request failed.
    fn poll_recvs(&mut self) -> Result<usize>;

    /// Sends messages, which are announced to the adapter together.
    ///
    /// # Errors
    /// Fails if a request was not posted.
    fn send(&mut self, count: usize) -> Result<()>;

    /// Posts one receive.
    ///
    /// # Errors
    /// Fails if the receive was not posted.
    fn receive(&mut self) -> Result<()>;
}

#[inline(never)]
fn measured_sends<P: Peer>(peer: &mut P, count: usize) -> Result<usize> {
    let mut completed = 0;
    for _ in 0..TIMES {
        peer_step_receive(peer, count)?;
        completed += peer.poll_sends()?;
        peer.send(count)?;
    }
    Ok(completed)
}

#[inline(never)]
fn measured_receives<P: Peer>(peer: &mut P) -> Result<usize> {
    let mut completed = 0;
    for _ in 0..TIMES {
        peer_step_send(peer)?;
        completed += peer.poll_recvs()?;
        peer.receive()?;
    }
    Ok(completed)
}

/// The step of the peer of a sender, and of the adapter.
#[inline(never)]
fn peer_step_receive<P: Peer>(peer: &mut P, count: usize) -> Result<()> {
    while peer.poll_recvs()? > 0 {}
    for _ in 0..count {
        peer.receive()?;
    }
    nic_model::settle();
    Ok(())
}

/// The step of the peer of a receiver, and of the adapter.
#[inline(never)]
fn peer_step_send<P: Peer>(peer: &mut P) -> Result<()> {
    while peer.poll_sends()? > 0 {}
    peer.send(1)?;
    nic_model::settle();
    Ok(())
}

/// Runs a step [`TIMES`] times. Returns `false` if the crate lacks it.
///
/// # Errors
/// Fails if a verb or a request fails, or if not all requests complete.
pub fn case<P: Peer>(step: Step) -> Result<bool> {
    if !P::STEPS.contains(&step) {
        return Ok(false);
    }
    nic_model::start(Options::new().drive(Drive::Step))?;
    let mut peer = P::new()?;
    let count = step.requests();
    // The first requests are posted before the measurement.
    let completed = if step == Step::Receive {
        peer.receive()?;
        measured_receives(&mut peer)?
    } else {
        peer.send(count)?;
        // The number of requests of a batch is not known to the compiler in the other programs.
        measured_sends(&mut peer, black_box(count))?
    };
    let expected = TIMES as usize * count;
    if completed != expected {
        return Err(format!("{completed} of {expected} requests completed").into());
    }
    Ok(true)
}

/// A function that runs a step with the verbs of a crate, as [`case`] does.
pub type Case = fn(Step) -> Result<bool>;

/// The main function of the program of a crate, with a function for each kind of verbs that it has.
/// The arguments are the names of a [`Step`] and of [`Verbs`]. Prints `lacking` if the crate has no
/// such step.
pub fn run_case(cases: &[(Verbs, Case)]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let step = Step::ALL
        .into_iter()
        .find(|step| arguments.first() == Some(&format!("{step:?}")));
    let case = cases
        .iter()
        .find(|(verbs, _)| arguments.get(1) == Some(&format!("{verbs:?}")));
    match step
        .zip(case)
        .map_or(Ok(false), |(step, (_, case))| case(step))
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("lacking");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("benches-peers: {arguments:?}: {error}");
            ExitCode::FAILURE
        }
    }
}
