//! Tests of the embedded engine over a real socket.
