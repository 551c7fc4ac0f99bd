//! The name of a GPU on the command line and in records.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A GPU of a host: `cuda:0` is the first GPU of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct GpuId {
    /// Number of the GPU, from 0.
    pub number: u32,
}

impl FromStr for GpuId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        number.map(|number| Self { number }).ok_or_else(|| {
            format!("invalid GPU `{text}`; expected: cuda:N, such as cuda:0 for the first GPU")
        })
    }
}

impl TryFrom<String> for GpuId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<GpuId> for String {
    fn from(gpu: GpuId) -> Self {
        gpu.to_string()
    }
}

impl fmt::Display for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_gpus_are_parsed_and_printed() {
        let gpu: GpuId = "cuda:7".parse().unwrap();
        assert_eq!((gpu.number, gpu.to_string().as_str()), (7, "cuda:7"));
        for text in ["cuda", "cuda:", "cuda:-1", "rocm:0", "0", "cuda:1:2"] {
            let error = text.parse::<GpuId>().unwrap_err();
            assert!(error.contains("expected: cuda:N"), "{error}");
        }
    }
}
