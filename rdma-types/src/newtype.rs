//! Integer newtypes for values of C and of the wire.

/// Defines an integer newtype with named constants.
///
/// Enumerations of C and fields on the wire gain values in newer versions. A Rust enum cannot
/// represent those; an integer can, and prints them as `unknown (NUMBER)`.
///
/// # Example
/// ```
/// rdma_types::c_value! {
///     /// The state of a subnet manager.
///     pub struct SmState(u8) {
///         /// Waiting for the master to fail.
///         STANDBY = 2 => "standby",
///         /// Managing the subnet.
///         MASTER = 3 => "master",
///     }
/// }
/// assert_eq!(SmState(3), SmState::MASTER);
/// assert_eq!(SmState(3).to_string(), "master");
/// assert_eq!(SmState(9).to_string(), "unknown (9)");
/// assert_eq!(format!("{:?}", SmState(3)), "SmState(3: master)");
/// ```
#[macro_export]
macro_rules! c_value {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($raw:ty) {
            $( $(#[$cmeta:meta])* $constant:ident = $value:expr => $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $raw);

        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_lossless,
            clippy::unnecessary_cast,
            reason = "the type of C's constant may differ from the field's"
        )]
        impl $name {
            $( $(#[$cmeta])* pub const $constant: Self = Self($value as $raw); )*

            /// Returns the usual name of this value, or `None` if this version of the crate has
            /// none for it.
            pub const fn name(self) -> Option<&'static str> {
                $( if self.0 == Self::$constant.0 { return Some($text); } )*
                None
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "unknown ({})", self.0),
                }
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{}({}: {name})", stringify!($name), self.0),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
}
