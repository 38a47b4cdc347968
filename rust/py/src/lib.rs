//! Python extension module.
