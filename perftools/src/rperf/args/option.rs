//! The table of options: each option of `rperf` is one row of an [`options!`] block, which has its
//! documentation (the help), the value and its limits as clap parses them, and an [`OptionEntry`]:
//!
//! - where it acts ([`Scope`]), so that a test that it does not act on is refused (`scope`);
//! - its other names: those of qperf, of its early versions and of other programs (`qperf`);
//! - the [`Quantity`] of its values, if a loop can vary it (`sweep`);
//! - the setter that applies it to a [`Spec`] (`to_spec`), which starts with the defaults;
//! - a sample, for the help of the option and for the tests.
//!
//! Everything else that depends on the option reads these rows, or the [`Spec`]: the help, the
//! manual page, the completion, the translation from perftest, a record, its schema, `-vu` and
//! `rperf compare`. A new option needs a row and a field of [`Spec`]. A row cannot lack its scope.
//! Tests demand a setter and a sample from each row that acts on tests, and that the sample changes
//! the specification of these tests and the output of `-vu`.
//!
//! The blocks are in `command_line`, `tuning`, `sockets`, `limits` and `server`.

use std::sync::LazyLock;

use clap::{Arg, ArgAction, Command, CommandFactory};
use measure::spec::{Side, Spec};

use super::command_line::Options;
use super::limits::LimitOptions;
use super::per_end::{End, PerEnd, only, value};
use super::server::ServerArgs;
use super::sockets::SocketOptions;
use super::sweep::Quantity;
use super::test_class::TestClass;
use super::tuning::TuningOptions;

/// Place where an option acts.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// A server.
    Server,
    /// A server, and the run of a client.
    Both,
    /// The run of a client.
    Run,
    /// Each test of this kind, and no other.
    Tests(&'static TestClass),
    /// The results of tests of this kind. Other tests of the same run are not affected.
    Results(&'static TestClass),
}

/// A command that has the options of tests too, but not all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherCommand {
    /// `rperf tune`.
    Tune,
    /// `rperf mesh`.
    Mesh,
}

/// The row of an option, besides the attributes of clap.
#[derive(Clone, Copy)]
pub(super) struct OptionEntry {
    /// Field of the option, which is the identifier of clap's argument.
    field: &'static str,
    pub(super) scope: Scope,
    /// Scope of the option with this value.
    pub(super) with_value: Option<(&'static str, Scope)>,
    /// Further names, those of qperf with one dash first.
    pub(super) names: &'static [&'static str],
    /// Names that include the value, each with this value.
    pub(super) shorthands: &'static [(&'static str, &'static str)],
    /// Name in early versions of qperf, which means something else in perftest.
    pub(super) former: Option<&'static str>,
    /// Names in other programs, without dashes, for which an error suggests this option.
    pub(super) synonyms: &'static [&'static str],
    /// Quantity of the values, if a loop can vary the option.
    pub(super) sweep: Option<Quantity>,
    /// The short help has the option.
    pub(super) is_common: bool,
    /// The option describes the connection to the server.
    pub(super) is_of_connection: bool,
    /// Option with the same purpose for the other tests.
    pub(super) alternative: Option<&'static str>,
    /// Commands that do not have the option.
    pub(super) not_in: &'static [OtherCommand],
    /// `rperf tune` varies the option, or it only formats the output of `rperf tune`. The commands
    /// that are suggested do not repeat it.
    pub(super) is_varied_by_tune: bool,
    /// A value other than the default, and the option that it requires.
    pub(super) sample: &'static [&'static str],
    /// Applies the option to a specification, if it was given.
    pub(super) set: Option<fn(&Options, &mut Spec)>,
}

/// Returns the row of an option that acts on tests.
pub(super) const fn on(class: &'static TestClass) -> OptionEntry {
    entry(Scope::Tests(class))
}

/// Returns the row of an option with this scope, and nothing else.
pub(super) const fn entry(scope: Scope) -> OptionEntry {
    OptionEntry {
        field: "",
        scope,
        with_value: None,
        names: &[],
        shorthands: &[],
        former: None,
        synonyms: &[],
        sweep: None,
        is_common: false,
        is_of_connection: false,
        alternative: None,
        not_in: &[],
        is_varied_by_tune: false,
        sample: &[],
        set: None,
    }
}

/// Defines methods of [`OptionEntry`] that set a field.
macro_rules! setters {
    ($($method:ident($($arg:ident: $type:ty)?) $field:ident = $value:expr;)*) => {
        impl OptionEntry {
            $(pub(super) const fn $method(mut self $(, $arg: $type)?) -> Self {
                self.$field = $value;
                self
            })*
        }
    };
}

setters! {
    named(field: &'static str) field = field;
    with_value(row: (&'static str, Scope)) with_value = Some(row);
    names(names: &'static [&'static str]) names = names;
    shorthands(names: &'static [(&'static str, &'static str)]) shorthands = names;
    former(name: &'static str) former = Some(name);
    synonyms(names: &'static [&'static str]) synonyms = names;
    sweep(quantity: Quantity) sweep = Some(quantity);
    common() is_common = true;
    of_connection() is_of_connection = true;
    instead(option: &'static str) alternative = Some(option);
    not_in(commands: &'static [OtherCommand]) not_in = commands;
    varied_by_tune() is_varied_by_tune = true;
    sample(words: &'static [&'static str]) sample = words;
    sets(set: fn(&Options, &mut Spec)) set = Some(set);
}

/// Defines a struct that clap parses, whose fields each have a row: `FIELD: TYPE = ROW`. Fields
/// without a row are other such structs.
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$field_attribute:meta])* $field:ident: $type:ty $(= $row:expr)?,)*
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $type,)*
        }

        impl $name {
            pub(super) const ROWS: &'static [$crate::rperf::args::option::OptionEntry] =
                &[$($($row.named(stringify!($field)),)?)*];
        }
    };
}
pub(super) use options;

/// An option: what clap knows of it, and its row.
pub(super) struct KnownOption {
    pub(super) arg: &'static Arg,
    pub(super) entry: &'static OptionEntry,
}

impl KnownOption {
    /// Returns the long name, without dashes.
    pub(super) fn long(&self) -> &'static str {
        self.arg.get_long().unwrap_or_default()
    }

    /// Returns the option that the sample requires, or nothing, and the sample.
    pub(super) fn sample(&self) -> (&'static str, String) {
        let required = self.entry.sample.get(1).copied().unwrap_or_default();
        let word = match self.entry.sample.first() {
            None | Some(&"") => format!("--{}", self.long()),
            Some(value) => format!("--{}={value}", self.long()),
        };
        (required, word)
    }

    /// Returns `true` if the values may be for one end. Such an option is a list of [`PerEnd`],
    /// which has no delimiter.
    pub(super) fn is_per_end(&self) -> bool {
        let is_list = matches!(self.arg.get_action(), ArgAction::Append);
        is_list && self.arg.get_value_delimiter().is_none() && self.long() != "loop"
    }
}

static COMMAND: LazyLock<Command> = LazyLock::new(Options::command);

static KNOWN: LazyLock<Vec<KnownOption>> = LazyLock::new(|| {
    let known = |arg: &'static Arg| {
        let entry = rows().find(|row| row.field == arg.get_id().as_str())?;
        Some(KnownOption { arg, entry })
    };
    COMMAND.get_arguments().filter_map(known).collect()
});

fn rows() -> impl Iterator<Item = &'static OptionEntry> {
    let groups = [
        Options::ROWS,
        TuningOptions::ROWS,
        SocketOptions::ROWS,
        LimitOptions::ROWS,
        ServerArgs::ROWS,
    ];
    groups.into_iter().flatten()
}

/// Returns all options in the order of the help.
pub(super) fn all() -> impl Iterator<Item = &'static KnownOption> {
    KNOWN.iter()
}

/// Returns the option with this long name, without dashes.
pub(super) fn find(long: &str) -> Option<&'static KnownOption> {
    all().find(|option| option.long() == long)
}

/// Sets a field of a specification, if a value was given.
pub(super) fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// Applies the value of each end, which is its own or the one of both ends.
pub(super) fn each_end<T>(values: &[PerEnd<T>], spec: &mut Spec, set: impl Fn(&mut Side, &T)) {
    for (end, side) in sides(spec) {
        if let Some(value) = value(values, end) {
            set(side, value);
        }
    }
}

/// Applies the values for one end alone.
pub(super) fn each_own<T>(values: &[PerEnd<T>], spec: &mut Spec, set: impl Fn(&mut Side, &T)) {
    for (end, side) in sides(spec) {
        if let Some(value) = only(values, end) {
            set(side, value);
        }
    }
}

fn sides(spec: &mut Spec) -> [(End, &mut Side); 2] {
    [
        (End::Local, &mut spec.client),
        (End::Remote, &mut spec.server),
    ]
}
