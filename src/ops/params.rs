//! Parameters of kernels: numbers with names, in the order of the kernel's struct. Reflection says what the struct in the shader
//! has, and every launch is held to it, field by field.

use std::borrow::Cow;

use crate::shader::{Field, Scalar};

/// A number that a kernel takes as a parameter.
pub trait Number: Copy {
    /// Its type in WGSL.
    const SCALAR: Scalar;
    /// Its bytes, as devices read them.
    fn bytes(self) -> [u8; 4];
}

macro_rules! number {
    ($($type:ty: $scalar:ident),*) => {
        $(impl Number for $type {
            const SCALAR: Scalar = Scalar::$scalar;
            fn bytes(self) -> [u8; 4] {
                self.to_ne_bytes()
            }
        })*
    };
}

number!(u32: U32, i32: I32, f32: F32);

/// The values of a kernel's parameter struct, field by field. [`params!`](crate::params!) makes them of a struct.
///
/// ```
/// use tightfit::ops::KernelParams;
///
/// let params = KernelParams::default().with("elements", 12_u32).with("slope", 0.1_f32);
/// assert_eq!(params.bytes().len(), 8);
/// assert_eq!(params.fields()[1].to_string(), "slope: f32 at byte 4");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelParams {
    fields: Vec<Field>,
    bytes: Vec<u8>,
}

impl KernelParams {
    /// Adds a field behind the others.
    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, value: impl Number) {
        fn field<N: Number>(name: Cow<'static, str>, offset: u32, _: N) -> Field {
            Field { name, scalar: N::SCALAR, offset }
        }
        self.fields.push(field(name.into(), self.bytes.len() as u32, value));
        self.bytes.extend_from_slice(&value.bytes());
    }

    /// Adds as many fields as there are names.
    pub fn push_all<const N: usize>(&mut self, names: [&'static str; N], values: [impl Number; N]) {
        names.into_iter().zip(values).for_each(|(name, value)| self.push(name, value));
    }

    /// With one more field behind the others.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Number) -> Self {
        self.push(name, value);
        self
    }

    /// Names, types and places.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The bytes that a launch is given.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, of parameters that are needed no longer.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Declares a struct of `u32`, `i32` and `f32` fields whose values are a kernel's parameters: [`Dispatch::params`] takes a
/// reference to it. The kernel's struct must have the same fields in the same order. An array stands for as many
/// fields, whose names in the shader follow `as`.
///
/// ```
/// tightfit::params! {
///     /// As `struct Params { elements: u32, stride_h: u32, stride_w: u32, eps: f32 }` in WGSL.
///     struct Params {
///         elements: u32,
///         stride: [u32; 2] as [stride_h, stride_w],
///         eps: f32,
///     }
/// }
/// let params = tightfit::ops::KernelParams::from(&Params { elements: 6, stride: [2, 1], eps: 1e-5 });
/// assert_eq!(params.fields()[2].to_string(), "stride_w: u32 at byte 8");
/// ```
///
/// [`Dispatch::params`]: crate::ops::Dispatch::params
#[macro_export]
macro_rules! params {
    (@push $all:ident, $params:ident, $field:ident) => {
        $all.push(stringify!($field), $params.$field)
    };
    (@push $all:ident, $params:ident, $field:ident, $($name:ident),+) => {
        $all.push_all([$(stringify!($name)),+], $params.$field)
    };
    ($(#[$meta:meta])* $visibility:vis struct $struct:ident {
        $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty $(as [$($name:ident),+])?),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $struct {
            $($(#[$field_meta])* $field_visibility $field: $type),*
        }

        impl From<&$struct> for $crate::ops::KernelParams {
            fn from(params: &$struct) -> Self {
                let mut all = Self::default();
                $($crate::params!(@push all, params, $field $($(, $name)+)?);)*
                all
            }
        }
    };
}
