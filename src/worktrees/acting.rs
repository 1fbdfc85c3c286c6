//! On whose behalf the running call acts, for the audit log.
//!
//! The edge (the handler of a call, a command of the command line) says it once; everything that the call awaits can
//! ask. A task that is spawned on its own acts for the worker.

use tokio::task_local;

use crate::model::actor::Actor;

task_local! {
    static ACTOR: Actor;
}

/// Runs `work` on behalf of `actor`.
pub async fn on_behalf<F: Future>(actor: Actor, work: F) -> F::Output {
    ACTOR.scope(actor, work).await
}

/// Whoever the running call acts for; the worker itself where nobody said so.
#[must_use]
pub fn current() -> Actor {
    ACTOR.try_with(Clone::clone).unwrap_or_else(|_| Actor::worker())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_awaited_acts_for_the_caller_and_what_is_spawned_for_the_worker() {
        let caller = Actor::caller("w-1", Some("ada"));
        let (awaited, spawned) = on_behalf(caller.clone(), async {
            let spawned = tokio::spawn(async { current() });
            (current(), spawned.await.unwrap())
        })
        .await;
        assert_eq!((awaited, spawned), (caller, Actor::worker()));
    }
}
