//! Running a walk: epochs, the report, and shrinking a failure to a short program.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use test_support::random::Random;

use crate::action::{Action, Counts, Kind};
use crate::setup::Setup;
use crate::violation::Violation;
use crate::world::World;

/// Number of actions after which all objects are destroyed and the walk begins again.
const EPOCH: usize = 1000;

/// Number of actions after which each kind must have had something to act on.
const LONG_WALK: u64 = 100_000;

/// Time that shrinking may take.
const MAX_SHRINKING: Duration = Duration::from_secs(30);

/// Length and seed of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of actions.
    pub actions: usize,
    /// Determines all choices.
    pub seed: u64,
    /// Print each action before it is performed, to find one that ends the process.
    pub trace: bool,
}

impl Options {
    /// Reads the options from `WALK_ACTIONS`, `WALK_SEED` and `WALK_TRACE`. `actions` is the
    /// default number of actions. The default seed is always the same.
    ///
    /// # Panics
    /// Panics if a variable is not a number.
    pub fn from_env(actions: usize) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
            let number = text.parse::<u64>();
            Some(number.unwrap_or_else(|_| panic!("{name}: {text:?}; expected a number")))
        };
        Self {
            actions: number("WALK_ACTIONS").map_or(actions, |actions| {
                usize::try_from(actions).expect("64 bits")
            }),
            seed: number("WALK_SEED").unwrap_or(1),
            trace: number("WALK_TRACE").is_some_and(|trace| trace != 0),
        }
    }
}

/// The result of a walk.
#[derive(Debug)]
pub struct Report {
    /// Number of actions of each kind.
    pub counts: Counts,
    /// The transports and operations of the device.
    support: String,
    seed: u64,
    elapsed: Duration,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    epoch: usize,
    action: usize,
    violation: Violation,
    /// The actions that lead to the violation, if it can be repeated.
    program: Vec<Action>,
    log: Vec<String>,
}

impl Report {
    /// Returns the first violation and the number of actions that were performed.
    pub fn violation(&self) -> Option<(String, u64)> {
        let violation = self.failure.as_ref()?.violation.to_string();
        Some((violation, self.counts.total()))
    }

    /// Prints the report.
    ///
    /// # Panics
    /// Panics if the model and the library differed, or if an action had nothing to act on in a
    /// long walk.
    pub fn check(&self) {
        println!("{self}");
        assert!(self.failure.is_none(), "the walk found a violation");
        if self.counts.total() >= LONG_WALK {
            let never = self.counts.never();
            assert!(never.is_empty(), "the walk never did this: {never:?}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "walk: {}", self.support)?;
        write!(f, "{}", self.counts)?;
        let (actions, seconds) = (self.counts.total(), self.elapsed.as_secs_f64());
        writeln!(
            f,
            "walk: seed {}, {actions} actions in {seconds:.1} s",
            self.seed
        )?;
        let Some(Failure {
            epoch,
            action,
            violation,
            program,
            log,
        }) = &self.failure
        else {
            return write!(f, "walk: no violation");
        };
        writeln!(
            f,
            "walk: VIOLATION in epoch {epoch}, action {action}: {violation}"
        )?;
        writeln!(f, "program of {} actions: {program:?}", program.len())?;
        writeln!(f, "its last steps:")?;
        log.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Performs random actions and compares the library with the model after each.
///
/// `new_setup` opens a device for each epoch. The guard that it returns is dropped when all objects
/// are destroyed; a panic then is a violation. If `shrinks`, the device is deterministic, and a
/// failure is repeated with fewer actions.
pub fn run<G>(
    options: Options,
    shrinks: bool,
    mut new_setup: impl FnMut(usize) -> (Setup, G),
) -> Report {
    let start = Instant::now();
    let mut report = Report {
        counts: Counts::default(),
        support: String::new(),
        seed: options.seed,
        elapsed: Duration::ZERO,
        failure: None,
    };
    let mut seeds = Random::new(options.seed.max(1));
    for epoch in 0..options.actions.div_ceil(EPOCH) {
        let mut random = Random::new(seeds.next_u64() | 1);
        let count = EPOCH.min(options.actions - epoch * EPOCH);
        let opened = new_setup(epoch);
        let kinds = Kind::supported(&opened.0);
        report.support = opened.0.support.to_string();
        report.counts.include(&kinds);
        let actions: Vec<Action> = (0..count)
            .map(|_| Action::random(&kinds, &mut random))
            .collect();
        let result = replay(opened, &actions, options.trace, Some(&mut report.counts));
        let Err((action, violation, log)) = result else {
            continue;
        };
        let mut found = Failure {
            epoch,
            action,
            violation,
            program: actions[..actions.len().min(action + 1)].to_vec(),
            log,
        };
        if shrinks {
            shrink(&mut found, &mut || new_setup(epoch));
        }
        report.failure = Some(found);
        break;
    }
    report.elapsed = start.elapsed();
    report
}

/// The actions without which no other action has an object.
const PRELUDE: [Kind; 12] = [
    Kind::AllocPd,
    Kind::CreateCq,
    Kind::CreatePool,
    Kind::CreatePool,
    Kind::CreateRegion,
    Kind::CreateRegion,
    Kind::CreateLink,
    Kind::CreateLink,
    Kind::CreateDatagram,
    Kind::CreateDatagram,
    Kind::ChangeAddress,
    Kind::ChangeAddress,
];

type Failed = (usize, Violation, Vec<String>);

/// Performs a list of actions, destroys all objects and drops the guard.
fn replay<G>(
    (setup, guard): (Setup, G),
    actions: &[Action],
    trace: bool,
    counts: Option<&mut Counts>,
) -> Result<(), Failed> {
    let result = perform(&setup, actions, trace, counts);
    drop(setup);
    // After a violation, a panic of the guard is a consequence.
    match (result, catch_unwind(AssertUnwindSafe(|| drop(guard)))) {
        (Ok(log), Err(panic)) => {
            let violation = Violation(panic_message(&*panic));
            Err((actions.len(), violation, log))
        }
        (result, _) => result.map(|_| ()),
    }
}

/// Performs a list of actions and destroys all objects. Returns the effects of the last actions.
fn perform(
    setup: &Setup,
    actions: &[Action],
    trace: bool,
    mut counts: Option<&mut Counts>,
) -> Result<Vec<String>, Failed> {
    let mut world = World::new(setup).map_err(|violation| (0, violation, Vec::new()))?;
    let supported = Kind::supported(setup);
    let prelude: Vec<Action> = PRELUDE
        .iter()
        .zip(1_u64..)
        .filter(|(kind, _)| supported.contains(kind))
        .map(|(&kind, seed)| Action { kind, seed })
        .collect();
    let first = prelude.len();
    for (step, action) in prelude
        .into_iter()
        .chain(actions.iter().copied())
        .enumerate()
    {
        if trace {
            eprintln!("{action:?}");
        }
        let result = catch_unwind(AssertUnwindSafe(|| world.act(action)));
        let index = step.saturating_sub(first);
        match result {
            Ok(Ok(done)) => {
                if let Some(counts) = counts.as_deref_mut().filter(|_| step >= first) {
                    counts.add(action.kind, done);
                }
            }
            Ok(Err(violation)) => return Err(fail(world, index, violation)),
            Err(panic) => return Err(fail(world, index, Violation(panic_message(&*panic)))),
        }
    }
    let log: Vec<String> = world.log.iter().cloned().collect();
    let mut random = actions
        .last()
        .map_or(Random::new(1), |action| action.choices());
    match catch_unwind(AssertUnwindSafe(|| world.finish(&mut random))) {
        Ok(Ok(())) => Ok(log),
        Ok(Err(violation)) => Err((actions.len(), violation, log)),
        Err(panic) => Err((actions.len(), Violation(panic_message(&*panic)), log)),
    }
}

fn fail(world: World<'_>, index: usize, violation: Violation) -> Failed {
    let log = world.log.iter().cloned().collect();
    // After a violation, destroying the objects can fail as well.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
    (index, violation, log)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("unknown"))
}

/// Removes actions as long as a violation remains (delta debugging).
fn shrink<G>(failure: &mut Failure, new_setup: &mut impl FnMut() -> (Setup, G)) {
    let start = Instant::now();
    let mut size = failure.program.len().div_ceil(2);
    while size > 0 && start.elapsed() < MAX_SHRINKING {
        let mut first = 0;
        while first < failure.program.len() && start.elapsed() < MAX_SHRINKING {
            let end = (first + size).min(failure.program.len());
            let mut shorter = failure.program.clone();
            shorter.drain(first..end);
            match replay(new_setup(), &shorter, false, None) {
                Err((_, violation, log)) => {
                    failure.program = shorter;
                    (failure.violation, failure.log) = (violation, log);
                }
                Ok(()) => first = end,
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
}
