//! Values that cross between Rust and Java.

use holdfast_core::{Error, FileId, Term};
use jni::objects::{JLongArray, JObject, JObjectArray, JString};
use jni::signature::MethodSignature;
use jni::strings::JNIStr;
use jni::sys::jlong;
use jni::{Env, JValue, jni_sig, jni_str};

use crate::guard::Failure;

/// Java strings as Rust strings.
pub(crate) fn strings<'local>(
    env: &mut Env<'local>,
    array: &JObjectArray<'local, JString<'local>>,
) -> Result<Vec<String>, Failure> {
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
) -> jni::errors::Result<JObjectArray<'local, JString<'local>>> {
    let array = JObjectArray::<JString>::new(env, texts.len(), JString::null())?;
    for (i, text) in texts.iter().enumerate() {
        let text = env.new_string(text)?;
        array.set_element(env, i, &text)?;
        env.delete_local_ref(text);
    }
    Ok(array)
}

/// Java numbers as Rust numbers.
pub(crate) fn longs<'local>(
    env: &mut Env<'local>,
    array: &JLongArray<'local>,
) -> Result<Vec<jlong>, Failure> {
    let mut values = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut values)?;
    Ok(values)
}

/// Rust numbers as Java numbers.
pub(crate) fn java_longs<'local>(
    env: &mut Env<'local>,
    values: &[jlong],
) -> Result<JLongArray<'local>, Failure> {
    let array = JLongArray::new(env, values.len())?;
    array.set_region(env, 0, values)?;
    Ok(array)
}

/// A class of Java whose objects hold numbers, all of them `long`: a record, mostly.
pub(crate) struct LongRecord {
    pub(crate) class: &'static JNIStr,
    pub(crate) constructor: MethodSignature<'static, 'static>,
}

impl LongRecord {
    /// An object with `values`, in the order of the record's components. Another number of them than
    /// the constructor takes is an error.
    pub(crate) fn object<'local>(
        &self,
        env: &mut Env<'local>,
        values: &[u64],
    ) -> Result<JObject<'local>, Failure> {
        let values: Vec<_> = values.iter().map(|n| JValue::Long(*n as jlong)).collect();
        Ok(env.new_object(self.class, &self.constructor, &values)?)
    }

    /// An array of such objects.
    pub(crate) fn array<'local, const N: usize>(
        &self,
        env: &mut Env<'local>,
        rows: &[[u64; N]],
    ) -> Result<JObjectArray<'local>, Failure> {
        let array = env.new_object_array(rows.len() as i32, self.class, JObject::null())?;
        for (i, row) in rows.iter().enumerate() {
            let object = self.object(env, row)?;
            array.set_element(env, i, &object)?;
            env.delete_local_ref(object);
        }
        Ok(array)
    }
}

/// A physical file as Java numbers it.
pub(crate) fn file_id(term: Term, number: jlong) -> Result<FileId, Failure> {
    let seq = u32::try_from(number).map_err(|_| {
        Error::invalid_input(format!("{number} is not the number of a physical file"))
    })?;
    Ok(FileId { term, seq })
}

/// `record FileId(long term, long number)`.
const FILE_ID: LongRecord = LongRecord {
    class: jni_str!("io/holdfast/spark/files/FileId"),
    constructor: jni_sig!("(JJ)V"),
};

/// Physical files as Java's `FileId[]`.
pub(crate) fn java_file_ids<'local>(
    env: &mut Env<'local>,
    files: &[FileId],
) -> Result<JObjectArray<'local>, Failure> {
    let rows: Vec<_> = files
        .iter()
        .map(|file| [file.term.0, u64::from(file.seq)])
        .collect();
    FILE_ID.array(env, &rows)
}

/// Java's `FileId[]` as physical files.
pub(crate) fn file_ids<'local>(
    env: &mut Env<'local>,
    array: &JObjectArray<'local>,
) -> Result<Vec<FileId>, Failure> {
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
