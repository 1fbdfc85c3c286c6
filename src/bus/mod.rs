//! What is needed of the engine, as narrow traits, and their `iii-sdk` implementation.
