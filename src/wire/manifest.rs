//! What `--manifest` prints, without a connection.

use serde_json::{Value, json};

use super::{WORKER_DESCRIPTION, WORKER_NAME};
use crate::model::config::WorktreeConfig;

/// Name, version, description, default configuration and the targets this release is built for.
#[must_use]
pub fn manifest() -> Value {
    json!({
        "name": WORKER_NAME,
        "version": env!("CARGO_PKG_VERSION"),
        "description": WORKER_DESCRIPTION,
        "default_config": WorktreeConfig::default(),
        "supported_targets": [
            "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin",
        ],
    })
}
