//! The format of the text output.

use base::units::Style;
use report::text::{Format, Verbosity};

use super::command_line::Options;
use super::values::Detail;

impl Options {
    /// Returns the format of the text output.
    pub fn text_format(&self) -> Format {
        let level = |some: Detail, all: Detail| {
            let has = |detail| self.verbose.contains(&detail);
            match (
                has(all) || has(Detail::More),
                has(some) || has(Detail::Some),
            ) {
                (true, _) => 2,
                (false, true) => 1,
                (false, false) => 0,
            }
        };
        Format {
            style: Style {
                precision: self.precision.unwrap_or(3),
                unify: self.unify_units,
                bits: self.bits,
            },
            verbosity: Verbosity {
                conf: level(Detail::Conf, Detail::MoreConf),
                stat: level(Detail::Stat, Detail::MoreStat),
                time: level(Detail::Time, Detail::MoreTime),
                used: level(Detail::Used, Detail::MoreUsed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn format(line: &str) -> Format {
        let words = std::iter::once("rperf").chain(line.split_whitespace());
        Options::try_parse_from(words).unwrap().text_format()
    }

    fn verbosity([conf, stat, time, used]: [u8; 4]) -> Verbosity {
        Verbosity {
            conf,
            stat,
            time,
            used,
        }
    }

    #[test]
    fn options_set_the_verbosity_of_each_category() {
        for (line, levels) in [
            ("", [0, 0, 0, 0]),
            ("--verbose", [1, 1, 1, 1]),
            ("--verbose=more", [2, 2, 2, 2]),
            ("--verbose=stat", [0, 1, 0, 0]),
            ("--verbose=more-time,used", [0, 0, 2, 1]),
            ("--verbose --verbose=more-conf", [2, 1, 1, 1]),
        ] {
            assert_eq!(format(line).verbosity, verbosity(levels), "{line}");
        }
    }

    #[test]
    fn options_set_the_style_of_values() {
        assert_eq!(format(""), Format::default());
        let unified = format("--unify-units --precision=5 --bits");
        let style = Style {
            precision: 5,
            unify: true,
            bits: true,
        };
        assert_eq!(unified.style, style);
    }
}
