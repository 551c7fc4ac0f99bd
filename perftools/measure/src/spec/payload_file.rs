//! The file whose bytes fill the messages of a test.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Maximum length of the file in bytes. The file travels in one frame of the control protocol.
pub const MAX_PAYLOAD_FILE: usize = 32 << 10;

/// The file whose bytes fill the messages of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PayloadFile {
    /// Name of the file on the command line of the client.
    pub file: String,
    /// Length of the file in bytes.
    pub length: u64,
    /// SHA-256 digest of the file in hexadecimal digits.
    pub sha256: String,
    /// The bytes of the file. A record omits them.
    #[serde(default, skip_serializing_if = "is_empty", with = "base64_lines")]
    #[cfg_attr(any(test, feature = "testing"), schemars(skip))]
    bytes: Arc<[u8]>,
}

impl PayloadFile {
    /// Creates a payload file from its name and its bytes.
    pub fn new(file: &str, bytes: &[u8]) -> Self {
        Self {
            file: file.to_owned(),
            length: bytes.len() as u64,
            sha256: format!("{:x}", Sha256::digest(bytes)),
            bytes: bytes.into(),
        }
    }

    /// Returns `true` if this has all bytes of the file, and their number is within the limits.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=MAX_PAYLOAD_FILE).contains(&self.bytes.len()) && self.bytes.len() as u64 == self.length
    }

    /// Returns the file without its bytes, for the record of a test.
    #[must_use]
    pub(crate) fn without_bytes(&self) -> Self {
        Self {
            bytes: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns the bytes of a message, without end: those of the file, repeated.
    pub(crate) fn repeated(&self) -> impl Iterator<Item = u8> + '_ {
        self.bytes.iter().copied().cycle()
    }

    /// Writes the bytes of the file into `message`, repeated until it is full.
    pub(crate) fn fill(&self, message: &mut [u8]) {
        for chunk in message.chunks_mut(self.bytes.len().max(1)) {
            for (to, from) in chunk.iter_mut().zip(&*self.bytes) {
                *to = *from;
            }
        }
    }
}

fn is_empty(bytes: &Arc<[u8]>) -> bool {
    bytes.is_empty()
}

/// Bytes as texts in base64. Each text is shorter than the limit of texts from a peer.
mod base64_lines {
    use std::sync::Arc;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Maximum number of bytes in one text. A multiple of 3 needs no padding.
    const BYTES_PER_TEXT: usize = 1200;

    pub(super) fn serialize<S: Serializer>(
        bytes: &Arc<[u8]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            bytes
                .chunks(BYTES_PER_TEXT)
                .map(|part| STANDARD.encode(part)),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<[u8]>, D::Error> {
        let mut bytes = Vec::new();
        for text in Vec::<String>::deserialize(deserializer)? {
            STANDARD
                .decode_vec(text, &mut bytes)
                .map_err(D::Error::custom)?;
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_repeats_the_bytes_of_the_file() {
        let file = PayloadFile::new("f", &[1, 2, 3]);
        for (len, expected) in [
            (0, &[][..]),
            (2, &[1, 2]),
            (3, &[1, 2, 3]),
            (8, &[1, 2, 3, 1, 2, 3, 1, 2]),
        ] {
            let mut message = vec![0; len];
            file.fill(&mut message);
            assert_eq!(message, expected);
            assert!(file.repeated().take(len).eq(expected.iter().copied()));
        }
    }

    #[test]
    fn bytes_travel_with_the_file_but_not_in_records() {
        let file = PayloadFile::new("pattern.bin", &[0, 255, 170]);
        let text = serde_json::to_string(&file).unwrap();
        assert!(text.contains(r#""bytes":["AP+q"]"#), "{text}");
        assert_eq!(serde_json::from_str::<PayloadFile>(&text).unwrap(), file);
        let record = serde_json::to_value(file.without_bytes()).unwrap();
        // Computed with sha256sum.
        let digest = "03927f4620df8f3eb19aa389f67c2d4bb361fe031fcc34addbb6e2135589c1e4";
        assert_eq!(
            record,
            serde_json::json!({"file": "pattern.bin", "length": 3, "sha256": digest})
        );
    }

    #[test]
    fn incomplete_and_long_files_are_invalid() {
        let valid = PayloadFile::new("f", &vec![7; MAX_PAYLOAD_FILE]);
        assert!(valid.is_valid());
        assert!(!valid.without_bytes().is_valid());
        assert!(!PayloadFile::new("f", &[]).is_valid());
        assert!(!PayloadFile::new("f", &vec![7; MAX_PAYLOAD_FILE + 1]).is_valid());
    }
}
