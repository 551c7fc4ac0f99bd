//! The macro behind every value that comes from C or from the wire: an integer with named
//! constants, never a Rust enum, so that a newer value is still a value and prints as its number.

macro_rules! c_value {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($raw:ty) {
            $( $(#[$cmeta:meta])* $constant:ident = $value:expr => $text:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $raw);

        impl $name {
            $( $(#[$cmeta])* pub const $constant: Self = Self($value); )*

            /// The usual name of this value, if this version of the crate knows one.
            pub const fn name(self) -> Option<&'static str> {
                $( if self.0 == Self::$constant.0 { return Some($text); } )*
                None
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "unknown ({})", self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{}({}: {name})", stringify!($name), self.0),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
}

pub(crate) use c_value;
