//! Parameters that a sweep varies.

use serde::{Deserialize, Serialize};

/// A parameter that a sweep set for one run of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Parameter {
    /// Name of the option, such as `traffic-class`.
    pub name: String,
    /// Value of the option, with its unit.
    pub value: String,
}
