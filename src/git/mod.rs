//! The only code that starts git.
