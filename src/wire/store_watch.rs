//! News of the state store, so that the registry sees what somebody else writes into its scopes.
//!
//! The function that hears them is internal and no part of the worker's surface, so it lies outside `worktree::`.

use std::sync::Arc;

use iii_sdk::{IIIClient, RegisterFunction};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::handler::{self, Answer};
use crate::worktrees::Context;
use crate::worktrees::watch::{self, StoreChange};

pub use crate::worktrees::watch::SCOPES;

/// The function that the engine calls.
pub const FUNCTION: &str = "worktree-registry::changed";

/// Registers the function.
pub fn register(client: &IIIClient, ctx: &Arc<Context>) {
    let (ctx, runtime) = (ctx.clone(), Handle::current());
    let handle = move |input: Value| {
        let (ctx, runtime) = (ctx.clone(), runtime.clone());
        async move {
            handler::answer(runtime, input, move |input| async move {
                watch::changed(&ctx, &handler::request::<StoreChange>(input)?).await?;
                Ok(Answer::new(()))
            })
            .await
        }
    };
    let registration = RegisterFunction::new_async(handle)
        .description("Hears of writes to the registry in the state store and takes over those of somebody else.")
        .metadata(json!({"internal": true}));
    client.register_function(FUNCTION, registration);
}
