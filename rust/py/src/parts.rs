//! Values as the calls that make them, for `repr` and pickle.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Arguments and keywords of a class.
pub(crate) type Parts<'py> = (Bound<'py, PyTuple>, Bound<'py, PyDict>);

/// A function and its arguments, as pickle calls it.
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyAny>,));

/// Attributes of a value as arguments and keywords of its class. Names are separated by blanks.
pub(crate) fn parts<'py>(
    value: &Bound<'py, PyAny>,
    arguments: &str,
    keywords: &str,
) -> PyResult<Parts<'py>> {
    let arguments = arguments.split_whitespace().map(|name| value.getattr(name));
    let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
    let named = PyDict::new(value.py());
    for name in keywords.split_whitespace() {
        named.set_item(name, value.getattr(name)?)?;
    }
    Ok((PyTuple::new(value.py(), arguments)?, named))
}

/// The text of the call with these parts.
pub(crate) fn constructed(
    value: &Bound<'_, PyAny>,
    (arguments, keywords): Parts<'_>,
) -> PyResult<String> {
    let mut texts = Vec::new();
    for argument in arguments {
        texts.push(argument.repr()?.to_string());
    }
    for (name, argument) in keywords {
        texts.push(format!("{name}={}", argument.repr()?));
    }
    Ok(format!(
        "{}({})",
        value.get_type().name()?,
        texts.join(", ")
    ))
}

/// Pickles a value as the bytes that its `from_bytes` decodes.
pub(crate) fn as_bytes<'py>(value: &Bound<'py, PyAny>) -> PyResult<Reduced<'py>> {
    let decode = value.get_type().getattr("from_bytes")?;
    Ok((decode, (value.call_method0("to_bytes")?,)))
}
