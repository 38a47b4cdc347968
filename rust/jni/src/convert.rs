//! Values that cross between Rust and Java.

use holdfast_core::state::VersionId;
use holdfast_core::{Error, FileId, Term};
use jni::objects::{JByteArray, JLongArray, JObject, JObjectArray, JString};
use jni::refs::Global;
use jni::signature::RuntimeMethodSignature;
use jni::strings::JNIStr;
use jni::sys::jlong;
use jni::{Env, JValue, JavaVM, jni_sig, jni_str};

use crate::guard::Result;

/// Java's `String[]`.
pub(crate) type JStrings<'local> = JObjectArray<'local, JString<'local>>;

/// An argument of a native method, made of the value `J` that Java passes.
pub(crate) trait Argument<J>: Sized {
    fn of(env: &mut Env<'_>, java: J) -> Result<Self>;
}

impl<J> Argument<J> for J {
    fn of(_: &mut Env<'_>, java: J) -> Result<Self> {
        Ok(java)
    }
}

impl Argument<JString<'_>> for String {
    fn of(env: &mut Env<'_>, java: JString<'_>) -> Result<Self> {
        Ok(java.try_to_string(env)?)
    }
}

impl Argument<JString<'_>> for VersionId {
    fn of(env: &mut Env<'_>, java: JString<'_>) -> Result<Self> {
        Ok(java.try_to_string(env)?.parse()?)
    }
}

/// `None` for null.
impl<'a, T: Argument<JString<'a>>> Argument<JString<'a>> for Option<T> {
    fn of(env: &mut Env<'_>, java: JString<'a>) -> Result<Self> {
        let given = (!java.is_null()).then(|| T::of(env, java));
        given.transpose()
    }
}

impl<'a, T: for<'b> Argument<JString<'b>>> Argument<JStrings<'a>> for Vec<T> {
    fn of(env: &mut Env<'_>, java: JStrings<'a>) -> Result<Self> {
        let mut values = Vec::new();
        for i in 0..java.len(env)? {
            // Thousands of partitions must not pile up in the local reference table.
            let value = env.with_local_frame(2, |env| -> Result<T> {
                let text = java.get_element(env, i)?;
                T::of(env, text)
            });
            values.push(value?);
        }
        Ok(values)
    }
}

impl Argument<JLongArray<'_>> for Vec<jlong> {
    fn of(env: &mut Env<'_>, java: JLongArray<'_>) -> Result<Self> {
        let mut values = vec![0; java.len(env)?];
        java.get_region(env, 0, &mut values)?;
        Ok(values)
    }
}

impl Argument<JByteArray<'_>> for Vec<u8> {
    fn of(env: &mut Env<'_>, java: JByteArray<'_>) -> Result<Self> {
        Ok(env.convert_byte_array(java)?)
    }
}

/// The answer of a native method, of which the value `J` for Java is made.
pub(crate) trait Answer<'local, J> {
    fn into_java(self, env: &mut Env<'local>) -> Result<J>;
}

impl<J> Answer<'_, J> for J {
    fn into_java(self, _: &mut Env<'_>) -> Result<J> {
        Ok(self)
    }
}

impl<'local> Answer<'local, JString<'local>> for String {
    fn into_java(self, env: &mut Env<'local>) -> Result<JString<'local>> {
        Ok(env.new_string(self)?)
    }
}

impl<'local> Answer<'local, JString<'local>> for Option<String> {
    fn into_java(self, env: &mut Env<'local>) -> Result<JString<'local>> {
        self.map_or(Ok(JString::null()), |text| text.into_java(env))
    }
}

impl<'local> Answer<'local, JStrings<'local>> for Vec<String> {
    fn into_java(self, env: &mut Env<'local>) -> Result<JStrings<'local>> {
        let array = JObjectArray::<JString>::new(env, self.len(), JString::null())?;
        for (i, text) in self.into_iter().enumerate() {
            let text = env.new_string(text)?;
            array.set_element(env, i, &text)?;
            env.delete_local_ref(text);
        }
        Ok(array)
    }
}

impl<'local> Answer<'local, JLongArray<'local>> for Vec<jlong> {
    fn into_java(self, env: &mut Env<'local>) -> Result<JLongArray<'local>> {
        let array = JLongArray::new(env, self.len())?;
        array.set_region(env, 0, &self)?;
        Ok(array)
    }
}

impl<'local> Answer<'local, JByteArray<'local>> for Vec<u8> {
    fn into_java(self, env: &mut Env<'local>) -> Result<JByteArray<'local>> {
        Ok(env.byte_array_from_slice(&self)?)
    }
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

/// Values of a record of Java whose components are all `long`, in order. Fails if the record has
/// another number of components.
pub(crate) struct LongRecord<const N: usize>(pub(crate) &'static JNIStr, pub(crate) [u64; N]);

impl<'local, const N: usize> Answer<'local, JObject<'local>> for LongRecord<N> {
    fn into_java(self, env: &mut Env<'local>) -> Result<JObject<'local>> {
        let constructor = RuntimeMethodSignature::from_str(format!("({})V", "J".repeat(N)))?;
        let values = self.1.map(|n| JValue::Long(n as jlong));
        Ok(env.new_object(self.0, constructor.method_signature(), &values)?)
    }
}

/// Such records of one class.
pub(crate) struct LongRecords<const N: usize>(pub(crate) &'static JNIStr, pub(crate) Vec<[u64; N]>);

impl<'local, const N: usize> Answer<'local, JObjectArray<'local>> for LongRecords<N> {
    fn into_java(self, env: &mut Env<'local>) -> Result<JObjectArray<'local>> {
        let array = env.new_object_array(self.1.len() as i32, self.0, JObject::null())?;
        for (i, row) in self.1.into_iter().enumerate() {
            let object: JObject<'_> = LongRecord(self.0, row).into_java(env)?;
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

/// Physical files, for Java's `record FileId(long term, long number)`.
pub(crate) fn file_records(files: &[FileId]) -> LongRecords<2> {
    let rows = files.iter().map(|file| [file.term.0, u64::from(file.seq)]);
    LongRecords(jni_str!("io/holdfast/spark/merged/FileId"), rows.collect())
}

/// Java's `FileId[]`.
impl Argument<JObjectArray<'_>> for Vec<FileId> {
    fn of(env: &mut Env<'_>, java: JObjectArray<'_>) -> Result<Self> {
        let mut files = Vec::new();
        for i in 0..java.len(env)? {
            let file = java.get_element(env, i)?;
            let mut part = |name| {
                let part = env.call_method(&file, name, jni_sig!("()J"), &[])?;
                part.j()
            };
            let (term, number) = (part(jni_str!("term"))?, part(jni_str!("number"))?);
            env.delete_local_ref(file);
            files.push(file_id(Term(term as u64), number)?);
        }
        Ok(files)
    }
}
