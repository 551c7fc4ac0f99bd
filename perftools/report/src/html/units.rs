//! Formatting of values. Most formats are the same as in the text output.

use base::units::{Size, Style};

pub(super) fn bandwidth(bytes_per_sec: f64) -> String {
    Style::default().bandwidth(bytes_per_sec).to_string()
}

pub(super) fn rate(per_sec: f64) -> String {
    Style::default().rate(per_sec).to_string()
}

pub(super) fn time(nanos: f64) -> String {
    Style::default().time(nanos).to_string()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The cast saturates.
pub(super) fn size(bytes: f64) -> String {
    Size(bytes as u64).to_string().replace(" bytes", " B")
}

pub(super) fn seconds(seconds: f64) -> String {
    let text = format!("{seconds:.3}");
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats the percentile that one in `one_in` samples exceeds: 100 is the 99th percentile.
pub(super) fn percentile(one_in: f64) -> String {
    if one_in <= 1.0 {
        return "min".to_owned();
    }
    let text = format!("{:.7}", (1.0 - 1.0 / one_in) * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_short_formats() {
        assert_eq!(
            (size(64.0), size(65536.0)),
            ("64 B".into(), "64 KiB".into())
        );
        assert_eq!(
            (percentile(1.0), percentile(2.0), percentile(1000.0)),
            ("min".into(), "50 %".into(), "99.9 %".into())
        );
        assert_eq!(
            (seconds(0.0), seconds(2.5), seconds(10.0)),
            ("0 s".into(), "2.5 s".into(), "10 s".into())
        );
        assert_eq!(
            (bandwidth(3.39e8), rate(5370.0), time(2e4)),
            ("339 MB/sec".into(), "5.37 K/sec".into(), "20 us".into())
        );
    }
}
