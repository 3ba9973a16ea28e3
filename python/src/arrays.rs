//! NumPy arrays as datasets, and what is computed as NumPy arrays.

use numpy::ndarray::{ArrayViewD, Axis};
use numpy::{Element, IntoPyArray as _, PyArrayDyn, PyArrayMethods as _};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tightfit::data::{Array, Batch, Dataset, Features, Sample, Values};
use tightfit::error::{DataError, HostMemory};
use tightfit::tensor::{DType, Shape};

/// Arrays by name.
pub(crate) type Named<'py> = Vec<(String, Bound<'py, PyArrayDyn<f32>>)>;

/// What Python gives for one name: the array, what its elements become (`f32`, `u8`, `u32`), and the order of a sample's axes where it is
/// another.
pub(crate) type Given<'py> = (String, Bound<'py, PyAny>, String, Option<Vec<usize>>);

/// An array of these elements, which is kept alive.
enum Typed {
    F32(Py<PyArrayDyn<f32>>),
    F64(Py<PyArrayDyn<f64>>),
    U8(Py<PyArrayDyn<u8>>),
    I8(Py<PyArrayDyn<i8>>),
    U16(Py<PyArrayDyn<u16>>),
    I16(Py<PyArrayDyn<i16>>),
    U32(Py<PyArrayDyn<u32>>),
    I32(Py<PyArrayDyn<i32>>),
    U64(Py<PyArrayDyn<u64>>),
    I64(Py<PyArrayDyn<i64>>),
    Bool(Py<PyArrayDyn<bool>>),
}

/// What all samples have under one name.
struct Entry {
    name: String,
    array: Typed,
    /// Of the array.
    extents: Vec<usize>,
    axes: Option<Vec<usize>>,
}

/// Samples in NumPy arrays, which are read batch by batch: each batch is copied, and converted where need be, while the interpreter is
/// held, so that no other thread of Python writes meanwhile. Nothing else is copied.
pub(crate) struct Arrays {
    entries: Vec<Entry>,
    features: Features,
    len: usize,
}

impl Arrays {
    pub(crate) fn new(given: Vec<Given<'_>>) -> PyResult<Self> {
        let mut entries = Vec::new();
        let mut features: Option<Features> = None;
        for (name, array, dtype, axes) in given {
            let (array, extents) = typed(&name, &array)?;
            let dtype = match &*dtype {
                "f32" => DType::F32,
                "u8" => DType::U8,
                "u32" => DType::U32,
                other => return Err(PyValueError::new_err(format!("`{other}` is not a type that a model takes"))),
            };
            let Some((&rows, sample)) = extents.split_first() else {
                return Err(PyValueError::new_err(format!(
                    "`{name}` is one number: its first axis must be the samples"
                )));
            };
            if rows == 0 || sample.contains(&0) {
                return Err(PyValueError::new_err(format!("`{name}` of shape {extents:?} is empty")));
            }
            let shape = match &axes {
                None => sample.to_vec(),
                Some(axes) => {
                    let mut sorted = axes.clone();
                    sorted.sort_unstable();
                    if !sorted.into_iter().eq(0..sample.len()) {
                        return Err(PyValueError::new_err(format!("`{name}`: {axes:?} is no order of its axes")));
                    }
                    axes.iter().map(|&axis| sample[axis]).collect()
                }
            };
            features = Some(match features {
                None => Features::new(dtype, shape),
                Some(features) => features.with(name.clone(), dtype, shape),
            });
            entries.push(Entry { name, array, extents, axes });
        }
        let (Some(features), Some(first)) = (features, entries.first()) else {
            return Err(PyValueError::new_err("there is no data"));
        };
        let len = first.extents[0];
        if let Some(other) = entries.iter().find(|entry| entry.extents[0] != len) {
            return Err(PyValueError::new_err(format!(
                "`{}` has {len} samples, `{}` has {}: each sample needs one",
                first.name, other.name, other.extents[0]
            )));
        }
        Ok(Arrays { entries, features, len })
    }

    /// All of it as one batch.
    pub(crate) fn batch(&self) -> Result<Batch, DataError> {
        let mut batch = Batch::default();
        self.read(&(0..self.len).collect::<Vec<_>>(), &mut batch)?;
        Ok(batch)
    }

    pub(crate) fn rows(&self) -> usize {
        self.len
    }
}

impl Dataset for Arrays {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        let mut batch = Batch::default();
        self.read(&[index], &mut batch)?;
        let mut sample = Sample::default();
        for (name, desc) in self.features.entries() {
            let values = batch.get(name).cloned().expect("bug: an entry that was read");
            sample.set(name, Array::new(values, desc.shape.clone())?);
        }
        Ok(sample)
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(self.features.clone())
    }

    fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        if let Some(index) = indices.iter().find(|&&index| index >= self.len) {
            return Err(DataError::Mismatch(format!("sample {index} of {} does not exist", self.len)));
        }
        Python::attach(|py| {
            let mut entries = self.entries.iter();
            batch.read(indices, &self.features, |_, values| {
                entries.next().expect("bug: features of no entry").read(py, indices, values)
            })
        })
    }
}

impl Entry {
    fn read(&self, py: Python<'_>, indices: &[usize], values: &mut Values) -> Result<(), DataError> {
        macro_rules! by_type {
            ($($kind:ident),*) => {
                match &self.array { $(Typed::$kind(array) => self.convert(array.bind(py), indices, values),)* }
            };
        }
        by_type!(F32, F64, U8, I8, U16, I16, U32, I32, U64, I64, Bool)
    }

    fn convert<T: Number>(
        &self,
        array: &Bound<'_, PyArrayDyn<T>>,
        indices: &[usize],
        values: &mut Values,
    ) -> Result<(), DataError> {
        let name = &self.name;
        let array = array
            .try_readonly()
            .map_err(|_| DataError::Mismatch(format!("`{name}` is being written to by other native code")))?;
        let view = array.as_array();
        if view.shape() != self.extents {
            return Err(DataError::Mismatch(format!("`{name}` has changed its shape since it was given")));
        }
        match values {
            Values::F32(values) => match view.as_slice().filter(|_| self.axes.is_none()) {
                // Nothing can be wrong with these, so that they are converted many at a time.
                Some(slice) => {
                    let numel = self.reserve(indices, values)?;
                    for &index in indices {
                        values.extend(slice[index * numel..(index + 1) * numel].iter().map(|number| number.float()));
                    }
                    Ok(())
                }
                None => self.rows(&view, indices, values, |number| Ok(number.float())),
            },
            Values::U8(values) => self.rows(&view, indices, values, |number| number.byte().ok_or("a byte")),
            Values::U32(values) => {
                self.rows(&view, indices, values, |number| number.integer().ok_or("a whole number of 32 bits"))
            }
        }
    }

    /// Makes room for rows of an array; returns the numbers of one.
    fn reserve<V>(&self, indices: &[usize], values: &mut Vec<V>) -> Result<usize, DataError> {
        let numel: usize = self.extents[1..].iter().product();
        let count = indices.len().saturating_mul(numel);
        let size_bytes = (count as u64).saturating_mul(size_of::<V>() as u64);
        values.try_reserve_exact(count).map_err(|_| HostMemory { size_bytes })?;
        Ok(numel)
    }

    /// Appends rows of an array.
    fn rows<T: Number, V>(
        &self,
        view: &ArrayViewD<'_, T>,
        indices: &[usize],
        values: &mut Vec<V>,
        convert: impl Fn(T) -> Result<V, &'static str>,
    ) -> Result<(), DataError> {
        let numel = self.reserve(indices, values)?;
        let whole = view.as_slice().filter(|_| self.axes.is_none());
        for &index in indices {
            let mut push = |number: &T| {
                values.push(convert(*number)?);
                Ok(())
            };
            let result: Result<(), &str> = match whole {
                Some(slice) => slice[index * numel..(index + 1) * numel].iter().try_for_each(&mut push),
                None => {
                    let row = view.index_axis(Axis(0), index);
                    match &self.axes {
                        Some(axes) => row.permuted_axes(axes.clone()).iter().try_for_each(&mut push),
                        None => row.iter().try_for_each(&mut push),
                    }
                }
            };
            result.map_err(|wanted| {
                DataError::Mismatch(format!("`{}` of sample {index} has a number that is not {wanted}", self.name))
            })?;
        }
        Ok(())
    }
}

/// What an array is made of.
trait Number: Element + Copy {
    fn float(self) -> f32;

    /// A label or an index. A negative label is the u32 of the same bits as its i32.
    fn integer(self) -> Option<u32>;

    fn byte(self) -> Option<u8> {
        self.integer().and_then(|number| u8::try_from(number).ok())
    }
}

macro_rules! integers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn float(self) -> f32 {
                self as f32
            }

            fn integer(self) -> Option<u32> {
                u32::try_from(self).ok().or_else(|| i32::try_from(self).ok().map(|number| number as u32))
            }
        }
    )*};
}

integers! { u8, i8, u16, i16, u32, i32, u64, i64 }

macro_rules! floats {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn float(self) -> f32 {
                self as f32
            }

            fn integer(self) -> Option<u32> {
                let is_whole = self.fract() == 0.0 && self.abs() <= 4_294_967_295.0;
                is_whole.then_some(self as i64).and_then(Number::integer)
            }
        }
    )*};
}

floats! { f32, f64 }

impl Number for bool {
    fn float(self) -> f32 {
        f32::from(u8::from(self))
    }

    fn integer(self) -> Option<u32> {
        Some(u32::from(self))
    }
}

/// The array with its type, and its extents.
fn typed(name: &str, array: &Bound<'_, PyAny>) -> PyResult<(Typed, Vec<usize>)> {
    macro_rules! try_types {
        ($($kind:ident: $number:ty),*) => {$(
            if let Ok(array) = array.cast::<PyArrayDyn<$number>>() {
                let extents = numpy::PyUntypedArrayMethods::shape(array.as_untyped()).to_vec();
                return Ok((Typed::$kind(array.clone().unbind()), extents));
            }
        )*};
    }
    try_types! {
        F32: f32, F64: f64, U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64, Bool: bool
    }
    let found = array.getattr("dtype").map_or_else(|_| array.get_type().to_string(), |dtype| dtype.to_string());
    Err(PyTypeError::new_err(format!("`{name}` is an array of {found}: give one of numbers")))
}

/// A new array of these numbers.
pub(crate) fn from_vec<'py>(py: Python<'py>, values: Vec<f32>, shape: &Shape) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    values.into_pyarray(py).reshape(shape.to_vec())
}

/// The shape and the numbers of an array of weights.
pub(crate) fn to_vec(name: &str, array: &Bound<'_, PyAny>) -> PyResult<(Vec<usize>, Vec<f32>)> {
    let Ok(array) = array.cast::<PyArrayDyn<f32>>() else {
        return Err(PyTypeError::new_err(format!("`{name}` must be an array of float32")));
    };
    let array = array.try_readonly()?;
    let view = array.as_array();
    Ok((view.shape().to_vec(), view.iter().copied().collect()))
}
