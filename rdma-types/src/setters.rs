//! Setters of option structs, in builder style.

/// Defines a setter of the same name for each listed field of an option struct.
///
/// Each setter takes `self` and returns it, so calls can be chained. The setter of an `Option<T>`
/// takes a `T`. The fields list their default values in their documentation.
///
/// # Example
/// ```
/// /// Options of a probe.
/// #[derive(Default)]
/// #[non_exhaustive]
/// pub struct ProbeOptions {
///     /// Number of attempts. Default: `0`.
///     pub tries: u32,
///     /// Name of the device. Default: `None`.
///     pub device: Option<&'static str>,
/// }
/// rdma_types::setters! {
///     ProbeOptions {
///         tries: u32,
///         device: Option<&'static str>,
///     }
/// }
/// let options = ProbeOptions::default().tries(3).device("rxe0");
/// assert_eq!((options.tries, options.device), (3, Some("rxe0")));
/// ```
#[macro_export]
macro_rules! setters {
    ($name:ident $(<$lifetime:lifetime>)? { $($fields:tt)* }) => {
        impl $(<$lifetime>)? $name $(<$lifetime>)? {
            $crate::setters!(@each $($fields)*);
        }
    };
    (@each) => {};
    (@each $field:ident: Option<$value:ty>, $($rest:tt)*) => {
        $crate::setters!(@one $field: $value = Some($field));
        $crate::setters!(@each $($rest)*);
    };
    (@each $field:ident: $value:ty, $($rest:tt)*) => {
        $crate::setters!(@one $field: $value = $field);
        $crate::setters!(@each $($rest)*);
    };
    (@one $field:ident: $value:ty = $stored:expr) => {
        #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
        #[inline]
        #[must_use = "setters return the changed options"]
        pub const fn $field(mut self, $field: $value) -> Self {
            self.$field = $stored;
            self
        }
    };
}
