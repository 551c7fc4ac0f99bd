//! Macro for integers with named constants in place of C enums, so that values of newer libraries
//! can be represented.

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

        impl $name {
            $( $(#[$cmeta])* pub const $constant: Self = Self($value); )*

            /// Returns the name of the value, or `None` if this version of the crate does not know
            /// it.
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
