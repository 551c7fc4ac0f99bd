//! The C libraries: linked, or loaded when a function of theirs is first called. The providers
//! libefa and libmlx5 are always loaded so, and with the feature `dlopen` all libraries are.

use core::fmt;

/// A C library of rdma-core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Library {
    /// libibverbs: `ibv_*`.
    Ibverbs,
    /// librdmacm: `rdma_*`.
    #[cfg(feature = "rdmacm")]
    Rdmacm,
    /// libibumad: `umad_*`.
    #[cfg(feature = "umad")]
    Ibumad,
    /// libefa: `efadv_*`.
    #[cfg(feature = "efa")]
    Efa,
    /// libmlx5: `mlx5dv_*`.
    #[cfg(feature = "mlx5")]
    Mlx5,
}

impl Library {
    /// Returns the name of the library's file.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Ibverbs => "libibverbs.so.1",
            #[cfg(feature = "rdmacm")]
            Self::Rdmacm => "librdmacm.so.1",
            #[cfg(feature = "umad")]
            Self::Ibumad => "libibumad.so.3",
            #[cfg(feature = "efa")]
            Self::Efa => "libefa.so.1",
            #[cfg(feature = "mlx5")]
            Self::Mlx5 => "libmlx5.so.1",
        }
    }

    /// Loads the library, unless it is loaded. It stays loaded until the process ends. Nothing is
    /// to be done for a library that the program is linked with, which are all but libefa and
    /// libmlx5 without the feature `dlopen`.
    ///
    /// # Errors
    /// Fails if the library is not installed, or is not a library for this processor. Every call
    /// returns the first error again.
    pub fn load(self) -> Result<(), LoadError> {
        #[cfg(any(feature = "dlopen", feature = "efa", feature = "mlx5"))]
        if !self.is_linked() {
            self.handle().map_err(|reason| LoadError {
                library: self,
                reason,
            })?;
        }
        Ok(())
    }

    /// Returns `true` if the program is linked with the library.
    #[cfg(any(feature = "dlopen", feature = "efa", feature = "mlx5"))]
    const fn is_linked(self) -> bool {
        match self {
            #[cfg(feature = "efa")]
            Self::Efa => false,
            #[cfg(feature = "mlx5")]
            Self::Mlx5 => false,
            _ => !cfg!(feature = "dlopen"),
        }
    }
}

/// A library that could not be loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LoadError {
    library: Library,
    reason: &'static str,
}

impl LoadError {
    /// Returns the library.
    pub const fn library(&self) -> Library {
        self.library
    }

    /// Returns what to install, or how to build a program that can load libraries.
    pub const fn help(&self) -> &'static str {
        if cfg!(all(target_env = "musl", target_feature = "crt-static")) {
            return "build with `-C target-feature=-crt-static` or for a glibc target; a static \
                    program of musl cannot load libraries";
        }
        match self.library {
            Library::Ibverbs => {
                "install libibverbs (Debian, Ubuntu: libibverbs1 and ibverbs-providers; Fedora, \
                 RHEL: libibverbs)"
            }
            #[cfg(feature = "rdmacm")]
            Library::Rdmacm => {
                "install librdmacm (Debian, Ubuntu: librdmacm1; Fedora, RHEL: librdmacm)"
            }
            #[cfg(feature = "umad")]
            Library::Ibumad => {
                "install libibumad (Debian, Ubuntu: libibumad3; Fedora, RHEL: libibumad)"
            }
            #[cfg(feature = "efa")]
            Library::Efa => {
                "install libefa (Debian, Ubuntu: ibverbs-providers; Fedora: libibverbs)"
            }
            #[cfg(feature = "mlx5")]
            Library::Mlx5 => {
                "install libmlx5 (Debian, Ubuntu: ibverbs-providers; Fedora, RHEL: libibverbs)"
            }
        }
    }
}

/// Writes the message and the remedy, for a `main` that returns the error.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}\nhelp: {}", self.help())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The reason of the dynamic linker begins with the name of the file.
        f.write_str(self.reason)
    }
}

impl std::error::Error for LoadError {}

/// Declares functions of a library like an `extern` block: `functions! { Ibverbs; pub fn … }`.
#[cfg(not(feature = "dlopen"))]
macro_rules! functions {
    ($library:ident; $($functions:tt)*) => {
        unsafe extern "C" { $($functions)* }
    };
}

/// Defines functions with the same syntax that look for those of the same name when they are first
/// called. They fail as [`Missing`](lookup::Missing) says if the library or the function is
/// missing.
///
/// All functions are defined so with the feature `dlopen`. Those of the providers always are, so
/// that a program also starts where a provider is not installed, and those that are newer than the
/// oldest library that the crate is linked with.
macro_rules! loaded_functions {
    ($library:ident;
        $($visibility:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $returned:ty)?;)*
    ) => {$(
        $visibility unsafe extern "C" fn $name($($arg: $type),*) $(-> $returned)? {
            use $crate::library::{Library, lookup::{Function, Missing}};
            static FUNCTION: Function =
                Function::new(Library::$library, concat!(stringify!($name), "\0"));
            match FUNCTION.address() {
                Some(address) => {
                    // SAFETY: the library has a function of this name, which has this type
                    // according to its header. The caller guarantees what the function requires.
                    unsafe {
                        core::mem::transmute::<
                            *mut core::ffi::c_void,
                            unsafe extern "C" fn($($type),*) $(-> $returned)?,
                        >(address.as_ptr())($($arg),*)
                    }
                }
                None => Missing::missing(&FUNCTION),
            }
        }
    )*};
}

#[cfg(not(feature = "dlopen"))]
pub(crate) use functions;
pub(crate) use loaded_functions;
// Miri loads no libraries. Tests define the functions that they call there.
#[cfg(all(miri, not(feature = "dlopen"), any(feature = "efa", feature = "mlx5")))]
pub(crate) use functions as provider_functions;
#[cfg(all(not(miri), any(feature = "efa", feature = "mlx5")))]
pub(crate) use loaded_functions as provider_functions;
#[cfg(feature = "dlopen")]
pub(crate) use loaded_functions as functions;

pub(crate) mod lookup {
    //! Finding functions of libraries, and loading the libraries.

    use core::ffi::{c_int, c_uint, c_void};
    use core::ptr::{self, NonNull};
    use core::sync::atomic::{AtomicPtr, Ordering};
    #[cfg(any(feature = "dlopen", feature = "efa", feature = "mlx5"))]
    use std::sync::OnceLock;

    use super::Library;

    #[cfg(any(feature = "dlopen", feature = "efa", feature = "mlx5"))]
    impl Library {
        /// Returns the loaded library, or why it could not be loaded.
        pub(super) fn handle(self) -> Result<&'static libloading::Library, &'static str> {
            type Loaded = OnceLock<Result<libloading::Library, String>>;
            static IBVERBS: Loaded = OnceLock::new();
            #[cfg(feature = "rdmacm")]
            static RDMACM: Loaded = OnceLock::new();
            #[cfg(feature = "umad")]
            static IBUMAD: Loaded = OnceLock::new();
            #[cfg(feature = "efa")]
            static EFA: Loaded = OnceLock::new();
            #[cfg(feature = "mlx5")]
            static MLX5: Loaded = OnceLock::new();

            let loaded = match self {
                Self::Ibverbs => &IBVERBS,
                #[cfg(feature = "rdmacm")]
                Self::Rdmacm => &RDMACM,
                #[cfg(feature = "umad")]
                Self::Ibumad => &IBUMAD,
                #[cfg(feature = "efa")]
                Self::Efa => &EFA,
                #[cfg(feature = "mlx5")]
                Self::Mlx5 => &MLX5,
            };
            let load = || {
                // SAFETY: the initialization of the libraries of rdma-core has no preconditions.
                unsafe { libloading::Library::new(self.file_name()) }
                    .map_err(|error| error.to_string())
            };
            loaded.get_or_init(load).as_ref().map_err(String::as_str)
        }
    }

    /// A function of a library, looked up when it is first called.
    pub(crate) struct Function {
        library: Library,
        /// Ends with a NUL byte.
        name: &'static str,
        /// Null until the function is found.
        address: AtomicPtr<c_void>,
    }

    impl Function {
        pub(crate) const fn new(library: Library, name: &'static str) -> Self {
            Self {
                library,
                name,
                address: AtomicPtr::new(ptr::null_mut()),
            }
        }

        /// Returns the address of the function, or `None` if the library does not have it.
        #[inline]
        pub(crate) fn address(&self) -> Option<NonNull<c_void>> {
            // The functions of a loaded library never change, and no data depends on the address.
            NonNull::new(self.address.load(Ordering::Relaxed)).or_else(|| self.look_up())
        }

        #[cold]
        fn look_up(&self) -> Option<NonNull<c_void>> {
            let address = self.find()?;
            self.address.store(address.as_ptr(), Ordering::Relaxed);
            Some(address)
        }

        fn find(&self) -> Option<NonNull<c_void>> {
            // First the program and the libraries that it is linked with, or that are preloaded.
            // SAFETY: the name ends with a NUL byte.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr().cast()) };
            #[cfg(any(feature = "dlopen", feature = "efa", feature = "mlx5"))]
            if address.is_null() && !self.library.is_linked() {
                let library = self.library.handle().ok()?;
                // SAFETY: a symbol that is read as a pointer is the address of what it names.
                let symbol = unsafe { library.get::<*mut c_void>(self.name.as_bytes()) };
                return symbol.ok().and_then(|symbol| NonNull::new(*symbol));
            }
            NonNull::new(address)
        }

        fn returns_descriptor(&self) -> bool {
            self.name.ends_with("_fd\0")
        }
    }

    /// The result of a missing function: the error `ENOSYS`, as the function reports errors.
    pub(crate) trait Missing {
        fn missing(function: &Function) -> Self;
    }

    fn set_errno() {
        // SAFETY: libc's `errno` of this thread is writable.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
    }

    impl Missing for c_int {
        fn missing(function: &Function) -> Self {
            set_errno();
            match function.library {
                _ if function.returns_descriptor() => -1,
                #[cfg(feature = "rdmacm")]
                Library::Rdmacm => -1,
                #[cfg(feature = "umad")]
                Library::Ibumad => -libc::ENOSYS,
                _ => libc::ENOSYS,
            }
        }
    }

    impl Missing for isize {
        fn missing(_: &Function) -> Self {
            set_errno();
            -(libc::ENOSYS as Self)
        }
    }

    impl<T> Missing for *mut T {
        fn missing(_: &Function) -> Self {
            set_errno();
            ptr::null_mut()
        }
    }

    impl<T> Missing for *const T {
        fn missing(_: &Function) -> Self {
            set_errno();
            ptr::null()
        }
    }

    impl Missing for () {
        fn missing(_: &Function) {
            set_errno();
        }
    }

    impl Missing for bool {
        fn missing(_: &Function) -> Self {
            set_errno();
            false
        }
    }

    macro_rules! missing_is_zero {
        ($($type:ty),*) => {$(
            impl Missing for $type {
                fn missing(_: &Function) -> Self {
                    set_errno();
                    0
                }
            }
        )*};
    }

    missing_is_zero!(c_uint, u8, u16, u64, usize);
}
