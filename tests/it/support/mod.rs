//! What the tests share: a sealed environment, repositories, running processes, SDK clients.
//!
//! Presence is polled with a long limit ([`until`]); absence gets a fixed window ([`WINDOW`]). The two never mix.

mod checkout;
mod client;
mod gate;
pub mod golden;
pub mod hostile;
pub mod mounts;
mod process;
mod relay;
pub mod seal;
pub mod stand;
pub mod stranger;

use std::future::Future;
use std::time::Duration;

pub use self::checkout::Checkout;
pub use self::client::{Client, Events};
pub use self::gate::Gate;
pub use self::process::Process;
pub use self::relay::Relay;
pub use self::seal::Seal;
pub use self::stand::Stand;

/// The longest wait for something that is to happen. Generous: a slow machine is not a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long nothing may happen before we believe that nothing will.
pub const WINDOW: Duration = Duration::from_millis(700);

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_worktree");

/// Asks again and again until there is an answer; panics with `what` when [`PATIENCE`] runs out.
pub async fn until<T, F, A>(what: &str, mut ask: A) -> T
where
    A: FnMut() -> F,
    F: Future<Output = Option<T>>,
{
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}
