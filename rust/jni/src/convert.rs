//! Values that cross between Rust and Java.

use holdfast_core::{Error, FileId, Term};
use jni::objects::{JLongArray, JObject, JObjectArray, JString};
use jni::refs::Global;
use jni::signature::RuntimeMethodSignature;
use jni::strings::JNIStr;
use jni::sys::jlong;
use jni::{Env, JValue, JavaVM, jni_sig, jni_str};

use crate::guard::Result;

/// Java's `String[]`.
pub(crate) type JStrings<'local> = JObjectArray<'local, JString<'local>>;

/// A Java string as a Rust string; `None` for null.
pub(crate) fn optional(env: &Env<'_>, text: &JString<'_>) -> Result<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    Ok(Some(text.try_to_string(env)?))
}

/// Inverse of [`optional`].
pub(crate) fn java_string<'local>(
    env: &mut Env<'local>,
    text: Option<String>,
) -> Result<JString<'local>> {
    match text {
        Some(text) => Ok(env.new_string(text)?),
        None => Ok(JString::null()),
    }
}

/// Java strings as Rust strings.
pub(crate) fn strings(env: &mut Env<'_>, array: &JStrings<'_>) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for i in 0..array.len(env)? {
        let text = array.get_element(env, i)?;
        texts.push(text.try_to_string(env)?);
        // Thousands of partitions must not pile up in the local reference table.
        env.delete_local_ref(text);
    }
    Ok(texts)
}

/// Rust strings as Java strings.
pub(crate) fn java_strings<'local>(
    env: &mut Env<'local>,
    texts: &[String],
) -> Result<JStrings<'local>> {
    let array = JObjectArray::<JString>::new(env, texts.len(), JString::null())?;
    for (i, text) in texts.iter().enumerate() {
        let text = env.new_string(text)?;
        array.set_element(env, i, &text)?;
        env.delete_local_ref(text);
    }
    Ok(array)
}

/// Java numbers as Rust numbers.
pub(crate) fn longs(env: &mut Env<'_>, array: &JLongArray<'_>) -> Result<Vec<jlong>> {
    let mut values = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut values)?;
    Ok(values)
}

/// Rust numbers as Java numbers.
pub(crate) fn java_longs<'local>(
    env: &mut Env<'local>,
    values: &[jlong],
) -> Result<JLongArray<'local>> {
    let array = JLongArray::new(env, values.len())?;
    array.set_region(env, 0, values)?;
    Ok(array)
}

/// An object of Java that any thread may call.
pub(crate) type JavaObject = Global<JObject<'static>>;

/// Calls up into Java.
pub(crate) fn call_up<T>(
    object: &JavaObject,
    call: impl for<'a> FnOnce(&mut Env<'a>, &JObject<'static>) -> jni::errors::Result<T>,
) -> jni::errors::Result<T> {
    // Java called this library, so its JVM is known.
    JavaVM::singleton()?.attach_current_thread(|env| call(env, object))
}

/// A record of Java whose components are all `long`.
pub(crate) struct LongRecord(pub(crate) &'static JNIStr);

impl LongRecord {
    /// An object with `values`, in the order of the record's components. Fails if the record has
    /// another number of components.
    pub(crate) fn object<'local>(
        &self,
        env: &mut Env<'local>,
        values: &[u64],
    ) -> Result<JObject<'local>> {
        let constructor = format!("({})V", "J".repeat(values.len()));
        let constructor = RuntimeMethodSignature::from_str(constructor)?;
        let values: Vec<_> = values.iter().map(|n| JValue::Long(*n as jlong)).collect();
        Ok(env.new_object(self.0, constructor.method_signature(), &values)?)
    }

    /// An array of such objects.
    pub(crate) fn array<'local, const N: usize>(
        &self,
        env: &mut Env<'local>,
        rows: &[[u64; N]],
    ) -> Result<JObjectArray<'local>> {
        let array = env.new_object_array(rows.len() as i32, self.0, JObject::null())?;
        for (i, row) in rows.iter().enumerate() {
            let object = self.object(env, row)?;
            array.set_element(env, i, &object)?;
            env.delete_local_ref(object);
        }
        Ok(array)
    }
}

/// A physical file as Java numbers it.
pub(crate) fn file_id(term: Term, number: jlong) -> Result<FileId> {
    let seq = u32::try_from(number).map_err(|_| {
        Error::invalid_input(format!("{number} is not the number of a physical file"))
    })?;
    Ok(FileId { term, seq })
}

/// `record FileId(long term, long number)`.
const FILE_ID: LongRecord = LongRecord(jni_str!("io/holdfast/spark/merged/FileId"));

/// Physical files as Java's `FileId[]`.
pub(crate) fn java_file_ids<'local>(
    env: &mut Env<'local>,
    files: &[FileId],
) -> Result<JObjectArray<'local>> {
    let rows: Vec<_> = files
        .iter()
        .map(|file| [file.term.0, u64::from(file.seq)])
        .collect();
    FILE_ID.array(env, &rows)
}

/// Java's `FileId[]` as physical files.
pub(crate) fn file_ids(env: &mut Env<'_>, array: &JObjectArray<'_>) -> Result<Vec<FileId>> {
    let mut files = Vec::new();
    for i in 0..array.len(env)? {
        let file = array.get_element(env, i)?;
        let term = env
            .call_method(&file, jni_str!("term"), jni_sig!("()J"), &[])?
            .j()?;
        let number = env
            .call_method(&file, jni_str!("number"), jni_sig!("()J"), &[])?
            .j()?;
        env.delete_local_ref(file);
        files.push(file_id(Term(term as u64), number)?);
    }
    Ok(files)
}
