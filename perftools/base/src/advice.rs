//! A condition and its remedy: the form of each error, warning, cause and outlier.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A condition, its kind for programs, and its remedy. Only its `Display` joins the parts:
/// `text; help: remedy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Advice<K> {
    /// Kind for programs to match.
    pub kind: K,
    /// Description of the condition.
    pub text: String,
    /// Remedy, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl<K> Advice<K> {
    /// Creates a condition without a remedy.
    pub fn new(kind: K, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            help: None,
        }
    }

    /// Sets the remedy.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prefixes the description with the operation that failed, or with the part of a test that the
    /// condition is about: `operation: description`.
    #[must_use]
    pub fn context(mut self, operation: impl fmt::Display) -> Self {
        self.text = format!("{operation}: {}", self.text);
        self
    }
}

impl<K> fmt::Display for Advice<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.help {
            Some(help) => write!(f, "; help: {help}"),
            None => Ok(()),
        }
    }
}
