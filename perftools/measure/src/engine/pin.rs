//! Binding of the threads of a test to processors.

use base::cpus::CpuList;
use base::error::{Error, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the processors that this process may use.
fn allowed() -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect())
}

/// Formats processors as a list of ranges.
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

/// Returns the processor of thread number `index` from `list`, or from all that this process may
/// use. Returns `None` if the thread may run on any.
///
/// Threads of one end begin at the first processor, and with `from_last` at the last one, because
/// both ends may be on the same host.
///
/// # Errors
/// Returns an error if the list names a NUMA node that does not exist.
pub(crate) fn nth_processor(
    list: Option<&CpuList>,
    index: usize,
    from_last: bool,
) -> Result<Option<CpuList>> {
    let cpus = match list.map(CpuList::numbers).transpose()? {
        Some(None) => return Ok(None),
        Some(Some(cpus)) => cpus,
        None => {
            let failed = |e: nix::Error| {
                Error::system("cannot get the processors of this process", &e.into())
            };
            allowed().map_err(failed)?
        }
    };
    let first = index % cpus.len().max(1);
    let chosen = if from_last {
        cpus.len().saturating_sub(1 + first)
    } else {
        first
    };
    Ok(cpus.get(chosen).copied().map(CpuList::single))
}

/// A binding of the thread that created it. Dropping it restores the previous binding.
#[derive(Debug)]
pub struct Pinned(Option<CpuSet>);

impl Pinned {
    /// Binds the calling thread to `list`.
    pub fn to(list: Option<&CpuList>) -> Result<Self> {
        let Some(list) = list else {
            return Ok(Self(None));
        };
        let Some(cpus) = list.numbers()? else {
            return Ok(Self(None));
        };
        let failed = |e: nix::Error| {
            let error = Error::system(format!("cannot run on the processors {list}"), &e.into());
            match allowed() {
                Ok(cpus) => error.with_help(format!(
                    "give processors to --cpu-affinity (-ca) from those available: {}",
                    ranges(&cpus)
                )),
                Err(_) => error,
            }
        };
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(cpu).map_err(failed)?;
        }
        let before = sched_getaffinity(Pid::from_raw(0)).map_err(failed)?;
        sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // This fails only if the processors are no longer available.
            let _ = sched_setaffinity(Pid::from_raw(0), before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_missing_processor_lists_those_available() {
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
    fn each_thread_gets_a_processor_of_its_own() {
        let list: CpuList = "2-4".parse().unwrap();
        let processors = |from_last| {
            [0, 1, 2, 3].map(|i| {
                let cpu = nth_processor(Some(&list), i, from_last).unwrap();
                cpu.unwrap().to_string()
            })
        };
        assert_eq!(processors(false), ["2", "3", "4", "2"]);
        assert_eq!(processors(true), ["4", "3", "2", "4"]);
        let any = "any".parse().unwrap();
        assert_eq!(nth_processor(Some(&any), 0, false).unwrap(), None);
        assert!(nth_processor(None, 7, false).unwrap().is_some());
    }

    #[test]
    fn dropping_a_binding_restores_the_previous_one() {
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
