//! What `--auto` varies, and in which steps.

use crate::rperf::spec::Spec;
use crate::rperf::spec::modes::Wait;

/// The settings of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// How both ends wait.
    pub wait: Wait,
    /// Messages under way on each queue pair.
    pub depth: u32,
    /// Messages a doorbell.
    pub post_list: u32,
    /// Bytes that go inline; none: a good choice.
    pub inline: Option<u32>,
    /// Queue pairs.
    pub qps: u32,
}

/// One of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Wait,
    Depth,
    PostList,
    Inline,
    Qps,
}

impl Settings {
    /// Those of a specification.
    pub(super) fn from_spec(spec: &Spec) -> Self {
        Self {
            wait: spec.client.wait,
            depth: spec.depth,
            post_list: spec.tuning.post_list,
            inline: spec.tuning.inline,
            qps: spec.qps,
        }
    }

    /// A specification with these.
    pub(super) fn on(self, spec: &Spec) -> Spec {
        let mut spec = spec.clone();
        (spec.client.wait, spec.server.wait) = (self.wait, self.wait);
        (spec.depth, spec.qps) = (self.depth, self.qps);
        (spec.tuning.post_list, spec.tuning.inline) = (self.post_list, self.inline);
        spec
    }

    /// These, with another value of `axis` each.
    pub(super) fn others(self, axis: Setting, size: u64) -> Vec<Self> {
        let all: Vec<Self> = match axis {
            Setting::Wait => [Wait::Poll, Wait::Adaptive, Wait::Events]
                .map(|wait| Self { wait, ..self })
                .into(),
            Setting::Depth => [16, 64, 256, 1024]
                .map(|depth| Self { depth, ..self })
                .into(),
            Setting::PostList => [1, 4, 64]
                .map(|post_list| Self { post_list, ..self })
                .into(),
            Setting::Inline => {
                let size = u32::try_from(size).unwrap_or(u32::MAX);
                [None, Some(0), Some(size)]
                    .map(|inline| Self { inline, ..self })
                    .into()
            }
            Setting::Qps => [1, 2, 4, 8].map(|qps| Self { qps, ..self }).into(),
        };
        all.into_iter().filter(|other| *other != self).collect()
    }

    /// As options of the command line, those that differ from `from`.
    pub(super) fn words(self, from: Self) -> Vec<String> {
        let wait = match self.wait {
            Wait::Adaptive => "adaptive",
            Wait::Poll => "poll",
            Wait::Events => "events",
        };
        let inline = self
            .inline
            .map_or_else(|| "auto".to_owned(), |n| n.to_string());
        let all = [
            (self.wait != from.wait, format!("--wait {wait}")),
            (self.depth != from.depth, format!("--depth {}", self.depth)),
            (
                self.post_list != from.post_list,
                format!("--post-list {}", self.post_list),
            ),
            (self.inline != from.inline, format!("--inline {inline}")),
            (self.qps != from.qps, format!("--qps {}", self.qps)),
        ];
        all.into_iter()
            .filter(|word| word.0)
            .map(|word| word.1)
            .collect()
    }
}
