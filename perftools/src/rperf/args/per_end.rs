//! Values of options for both ends, or for one end: `VALUE`, `local=VALUE` or
//! `local=VALUE,remote=VALUE`.

use std::str::FromStr;

/// One end of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client, which is this end.
    Local,
    /// The server.
    Remote,
}

impl End {
    pub(super) const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// Returns the text that precedes a value for this end.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Local => "local=",
            Self::Remote => "remote=",
        }
    }
}

/// The value of one occurrence of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerEnd<T> {
    both: Option<T>,
    local: Option<T>,
    remote: Option<T>,
}

/// Returns a parser of values for both ends or for one end, from a parser of the value itself.
pub(super) fn per_end<T>(
    parse: impl Fn(&str) -> Result<T, String> + Clone,
) -> impl Fn(&str) -> Result<PerEnd<T>, String> + Clone {
    move |text| {
        let mut values = PerEnd {
            both: None,
            local: None,
            remote: None,
        };
        if End::ALL.iter().all(|end| !text.starts_with(end.prefix())) {
            values.both = Some(parse(text)?);
            return Ok(values);
        }
        for part in split(text) {
            for end in End::ALL {
                if let Some(value) = part.strip_prefix(end.prefix()) {
                    let own = match end {
                        End::Local => &mut values.local,
                        End::Remote => &mut values.remote,
                    };
                    *own = Some(parse(value)?);
                }
            }
        }
        Ok(values)
    }
}

impl<T: FromStr<Err = String>> FromStr for PerEnd<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        per_end(str::parse)(text)
    }
}

/// Splits `local=a,b,remote=c` before the name of each end. A value may contain commas.
fn split(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = End::ALL
        .iter()
        .flat_map(|end| text.match_indices(end.prefix()))
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || text[..*at].ends_with(','))
        .collect();
    starts.sort_unstable();
    let ends = starts.iter().skip(1).map(|next| next - 1);
    starts
        .iter()
        .zip(ends.chain([text.len()]))
        .map(|(from, to)| &text[*from..to])
        .collect()
}

/// Returns the last value for both ends.
pub(super) fn both<T>(occurrences: &[PerEnd<T>]) -> Option<&T> {
    let mut last_first = occurrences.iter().rev();
    last_first.find_map(|values| values.both.as_ref())
}

/// Returns the last value for this end alone.
pub(super) fn only<T>(occurrences: &[PerEnd<T>], end: End) -> Option<&T> {
    let mut last_first = occurrences.iter().rev();
    last_first.find_map(|values| match end {
        End::Local => values.local.as_ref(),
        End::Remote => values.remote.as_ref(),
    })
}

/// Returns the value for an end: the one for this end alone, or else the one for both.
pub(super) fn value<T>(occurrences: &[PerEnd<T>], end: End) -> Option<&T> {
    only(occurrences, end).or_else(|| both(occurrences))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(texts: &[&str]) -> [Option<String>; 2] {
        let parse = per_end(|text| Ok(text.to_owned()));
        let all: Vec<_> = texts.iter().map(|text| parse(text).unwrap()).collect();
        End::ALL.map(|end| value(&all, end).cloned())
    }

    #[test]
    fn a_value_for_one_end_has_precedence() {
        let some = |text: &str| Some(text.to_owned());
        for (texts, local, remote) in [
            (&["a"][..], some("a"), some("a")),
            (&["local=a"], some("a"), None),
            (&["local=a,remote=b"], some("a"), some("b")),
            (&["remote=b,c,local=a,d"], some("a,d"), some("b,c")),
            (&["remote=b", "a"], some("a"), some("b")),
            (&["a", "b", "local=c", "local=d"], some("d"), some("b")),
            (&["x_local=a"], some("x_local=a"), some("x_local=a")),
        ] {
            assert_eq!(ends(texts), [local, remote], "{texts:?}");
        }
        assert_eq!(ends(&[]), [None, None]);
    }

    #[test]
    fn each_value_is_parsed() {
        let parse = per_end(|text| text.parse::<u8>().map_err(|e| e.to_string()));
        for text in ["x", "local=x", "local=1,remote=", "local=1,2", "local="] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
