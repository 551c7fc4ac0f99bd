//! Which processors a test runs on.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::common::cpus::CpuList;
use crate::common::error::{Error, Result};

/// The processors that this process may use.
fn allowed() -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect())
}

/// Processors as a list is written.
fn ranges(cpus: &[usize]) -> String {
    let runs = cpus
        .chunk_by(|a, b| a + 1 == *b)
        .filter_map(|run| Some((run.first()?, run.last()?)));
    let words = runs.map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    words.collect::<Vec<_>>().join(",")
}

/// The processor of thread number `index` out of these, or out of all that this process may use;
/// none: any. Threads of one end begin at the first, those of the `other` at the last: both may be
/// on one host.
///
/// # Errors
/// A node that is not there.
pub fn own(list: Option<&CpuList>, index: usize, other: bool) -> Result<Option<CpuList>> {
    let cpus = match list.map(CpuList::numbers).transpose()? {
        Some(None) => return Ok(None),
        Some(Some(cpus)) => cpus,
        None => {
            let wrong = |e: nix::Error| {
                Error::system("cannot ask for this process's processors", &e.into())
            };
            allowed().map_err(wrong)?
        }
    };
    let at = index % cpus.len().max(1);
    let at = if other {
        cpus.len().saturating_sub(1 + at)
    } else {
        at
    };
    Ok(cpus.get(at).copied().map(CpuList::single))
}

/// The thread that made it runs on these processors until it is dropped.
#[derive(Debug)]
pub struct Pinned(Option<CpuSet>);

impl Pinned {
    /// Binds the calling thread.
    ///
    /// # Errors
    /// A processor or node that is not there, or not for this process.
    pub fn to(list: Option<&CpuList>) -> Result<Self> {
        let Some(list) = list else {
            return Ok(Self(None));
        };
        let Some(cpus) = list.numbers()? else {
            return Ok(Self(None));
        };
        let wrong = |e: nix::Error| {
            let those = allowed().map_or_else(|_| "others".to_owned(), |cpus| ranges(&cpus));
            let what = format!(
                "cannot run on the processors {list}, only on {those}: --cpu-affinity (-ca) takes of these"
            );
            Error::system(what, &e.into())
        };
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(cpu).map_err(wrong)?;
        }
        let before = sched_getaffinity(Pid::from_raw(0)).map_err(wrong)?;
        sched_setaffinity(Pid::from_raw(0), &set).map_err(wrong)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(Pid::from_raw(0), before); // as it was, as far as that is still possible
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_are_not_there_are_answered_with_those_there_are() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        let error = Pinned::to(Some(&"1023".parse().unwrap()))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&ranges(&allowed().unwrap())) && error.contains("-ca"),
            "{error}"
        );
    }

    #[test]
    fn each_thread_has_a_processor_of_its_own_and_the_other_end_begins_at_the_last() {
        let list: CpuList = "2-4".parse().unwrap();
        let of =
            |other| [0, 1, 2, 3].map(|i| own(Some(&list), i, other).unwrap().unwrap().to_string());
        assert_eq!(of(false), ["2", "3", "4", "2"]);
        assert_eq!(of(true), ["4", "3", "2", "4"]);
        assert_eq!(own(Some(&"any".parse().unwrap()), 0, false).unwrap(), None);
        assert!(own(None, 7, false).unwrap().is_some());
    }

    #[test]
    fn a_thread_is_bound_and_let_go() {
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count())
            .find(|cpu| before.is_set(*cpu).unwrap())
            .unwrap();
        let pinned = Pinned::to(Some(&first.to_string().parse().unwrap())).unwrap();
        let now = sched_getaffinity(Pid::from_raw(0)).unwrap();
        assert_eq!(
            (0..CpuSet::count())
                .filter(|cpu| now.is_set(*cpu).unwrap())
                .count(),
            1
        );
        drop(pinned);
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
    }
}
