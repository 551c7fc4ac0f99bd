//! The records of a run in one of the formats.

use base::error::Result;
use report::json::JsonContent;
use report::record::Record;
use report::table::Table;
use report::text::Format;

use super::live::LiveOutput;
use super::print;
use crate::rperf::args::command_line::Options;

/// The output of a run in one of the formats.
pub(super) struct Output<'a> {
    pub(super) host: Option<&'a str>,
    pub(super) global: &'a Options,
    format: Format,
    pub(super) live: LiveOutput,
    table: Option<Table>,
}

impl<'a> Output<'a> {
    pub(super) fn new(host: Option<&'a str>, global: &'a Options, tests: usize) -> Self {
        let format = global.text_format();
        Self {
            host,
            global,
            format,
            live: LiveOutput::new(global, host, format.style, tests),
            table: global.tuning.is_sweep().then(|| Table::new(format)),
        }
    }

    /// Prints a record.
    pub(super) fn write(&mut self, record: Record) -> Result<()> {
        let text = if self.global.json {
            JsonContent::Test(Box::new(record)).render()
        } else if let Some(table) = &mut self.table {
            table.render(&record)
        } else if self.live.is_name_printed() {
            self.format.figures(&record)
        } else {
            self.format.render(&record)
        };
        print(&text)
    }
}
