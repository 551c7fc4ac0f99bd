//! Settings that `rperf tune` varies, and the values that it tries.

use measure::spec::Spec;
use measure::spec::modes::Wait;

/// Settings of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SearchSettings {
    /// Method that both ends use to wait for completions.
    pub wait: Wait,
    /// Messages in flight on each queue pair.
    pub depth: u32,
    /// Messages per doorbell.
    pub post_list: u32,
    /// Largest message in bytes that is sent inline. `None` lets rperf choose.
    pub inline: Option<u32>,
    /// Number of queue pairs.
    pub qps: u32,
}

/// Setting that a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Wait,
    Depth,
    PostList,
    Inline,
    Qps,
}

impl SearchSettings {
    /// Returns the settings of a specification.
    pub(super) fn from_spec(spec: &Spec) -> Self {
        Self {
            wait: spec.client.wait,
            depth: spec.depth,
            post_list: spec.tuning.post_list,
            inline: spec.tuning.inline,
            qps: spec.qps,
        }
    }

    /// Returns a copy of `spec` with these settings.
    pub(super) fn apply_to(self, spec: &Spec) -> Spec {
        let mut spec = spec.clone();
        (spec.client.wait, spec.server.wait) = (self.wait, self.wait);
        (spec.depth, spec.qps) = (self.depth, self.qps);
        (spec.tuning.post_list, spec.tuning.inline) = (self.post_list, self.inline);
        spec
    }

    /// Returns copies with each other value of one setting, for messages of `size` bytes.
    pub(super) fn variants(self, setting: Setting, size: u64) -> Vec<Self> {
        let all: Vec<Self> = match setting {
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

    /// Returns the command-line options for the settings that differ from `base`.
    pub(super) fn options(self, base: Self) -> Vec<String> {
        let wait = match self.wait {
            Wait::Adaptive => "adaptive",
            Wait::Poll => "poll",
            Wait::Events => "events",
        };
        let inline = self
            .inline
            .map_or_else(|| "auto".to_owned(), |n| n.to_string());
        let all = [
            (self.wait != base.wait, format!("--wait {wait}")),
            (self.depth != base.depth, format!("--depth {}", self.depth)),
            (
                self.post_list != base.post_list,
                format!("--post-list {}", self.post_list),
            ),
            (self.inline != base.inline, format!("--inline {inline}")),
            (self.qps != base.qps, format!("--qps {}", self.qps)),
        ];
        all.into_iter()
            .filter(|(differs, _)| *differs)
            .map(|(_, option)| option)
            .collect()
    }
}
