//! JNI surface of Holdfast.
