//! The use cases for a command of the command line, beside a worker that serves.
//!
//! Two processes then work on one registry: the lock of the repository keeps their writes apart, and the worker hears
//! of what the command writes from the state store. Events are not sent: whoever is bound to them is known to the
//! worker alone.

use std::sync::Arc;

use iii_sdk::IIIClient;

use super::bindings::Bindings;
use super::serve;
use crate::bus::iii::IiiBus;
use crate::model::Result;
use crate::worktrees::Context;

/// What a command works with: the stored configuration, and the registry as the store has it now. `client` is
/// connected, under a name of its own.
///
/// # Errors
/// `W010` when no configuration is stored (no worker has served on this engine yet) or it cannot be applied, `W300`
/// when engine or store cannot be reached.
pub async fn attach(client: IIIClient) -> Result<Arc<Context>> {
    let bus = IiiBus::new(client);
    let settings = serve::config_entry(&bus).read().await?;
    let ctx = serve::context(&bus, &Bindings::default(), settings);
    ctx.registry.load().await?;
    Ok(ctx)
}
