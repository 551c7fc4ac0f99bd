//! Serialization of GIDs: as text in human-readable formats, as 16 bytes in others.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::address::Gid;

impl Serialize for Gid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Gid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Gid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a GID, written as an IPv6 address")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Gid, E> {
                text.parse().map_err(|_| {
                    E::custom(format!("{text} is not a GID; expected an IPv6 address"))
                })
            }
        }

        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Text)
        } else {
            <[u8; 16]>::deserialize(deserializer).map(Gid)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::gid::address::Gid;
    use crate::mr::RemoteMemory;
    use crate::numbers::{Psn, Qpn};
    use crate::port::Lid;
    use crate::qp::Endpoint;

    #[test]
    fn endpoint_and_remote_memory_round_trip() {
        let gid: Gid = "::ffff:10.99.0.1".parse().expect("a GID");
        let end = Endpoint {
            qpn: Qpn(17),
            psn: Psn(0x00ab_cdef),
            lid: Lid(3),
            gid,
        };
        let text = serde_json::to_string(&end).expect("text");
        assert_eq!(
            text,
            r#"{"qpn":17,"psn":11259375,"lid":3,"gid":"::ffff:10.99.0.1"}"#
        );
        assert_eq!(
            serde_json::from_str::<Endpoint>(&text).expect("its own text"),
            end
        );
        let memory = RemoteMemory {
            addr: u64::MAX - 4096,
            len: 4096,
            rkey: u32::MAX,
        };
        let text = serde_json::to_string(&memory).expect("text");
        assert_eq!(
            serde_json::from_str::<RemoteMemory>(&text).expect("its own text"),
            memory
        );
    }

    #[test]
    fn invalid_gid_is_rejected_with_a_clear_message() {
        let error = serde_json::from_str::<Gid>(r#""10.99.0.1""#).expect_err("IPv4");
        assert!(
            error.to_string().contains("10.99.0.1 is not a GID"),
            "{error}"
        );
        serde_json::from_str::<Gid>("7").expect_err("a number");
    }
}
