//! The bus surface of the worker.
