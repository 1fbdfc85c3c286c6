//! Who runs the next land job.
