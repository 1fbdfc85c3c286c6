//! Tests of the git layer on real repositories.
