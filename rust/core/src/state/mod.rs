//! State tables: the content of one state store and how it is saved and loaded.
