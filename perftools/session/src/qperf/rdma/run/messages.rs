//! Loops that send messages: many at a time, or one at a time in both directions.

use std::time::Instant;

use base::error::Result;
use measure::spec::plan::Verb;
use measure::stats::latency::LatencyRecorder;

use super::{Run, record};

impl Run<'_> {
    pub(super) fn source(
        &mut self,
        verb: Verb,
        one: bool,
        latencies: &mut Option<LatencyRecorder>,
    ) -> Result<()> {
        let depth = if one { 1 } else { u64::from(self.io.end.depth) };
        let mut before = Instant::now();
        let mut posted = 0;
        while !self.is_over() && self.io.sent < self.total {
            while posted < self.total && posted - self.io.sent < depth {
                self.post(verb)?;
                posted += 1;
            }
            let (sends, _) = self.wait()?;
            if let (Some(latencies), true) = (latencies.as_mut(), sends > 0) {
                before = record(latencies, before, 1);
            }
        }
        Ok(())
    }

    pub(super) fn sink(&mut self) -> Result<()> {
        while !self.is_over() && self.io.received < self.total {
            let (_, receives) = self.wait()?;
            self.post_receives(receives)?;
        }
        Ok(())
    }

    pub(super) fn both(&mut self) -> Result<()> {
        for _ in 0..self.io.end.depth {
            self.post(Verb::Send)?;
        }
        while !self.is_over() {
            let (sends, receives) = self.wait()?;
            self.post_receives(receives)?;
            for _ in 0..sends {
                self.post(Verb::Send)?;
            }
        }
        Ok(())
    }

    pub(super) fn ping_pong(
        &mut self,
        verb: Verb,
        first: bool,
        latencies: &mut Option<LatencyRecorder>,
    ) -> Result<()> {
        let mut before = Instant::now();
        if first {
            self.post(verb)?;
        }
        while !self.is_over() {
            let (_, receives) = self.wait()?;
            if receives == 0 {
                continue;
            }
            self.post_receives(receives)?;
            if let Some(latencies) = latencies.as_mut() {
                before = record(latencies, before, 2);
            }
            self.post(verb)?;
        }
        Ok(())
    }
}
