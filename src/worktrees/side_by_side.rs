//! Many small pieces of work at a time: what asks git about hundreds of worktrees keeps the cores busy, and no more.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::git::cores;

/// Runs `each` for all `items`, twice as many at a time as there are cores, and returns what they gave in the order of
/// the items; `None` for one that panicked.
pub async fn run<T, R, F, W>(items: Vec<T>, each: F) -> Vec<Option<R>>
where
    F: Fn(T) -> W,
    W: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let turns = Arc::new(Semaphore::new(cores() * 2));
    let mut results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(items.len()).collect();
    let mut running = JoinSet::new();
    for (at, item) in items.into_iter().enumerate() {
        let (work, turns) = (each(item), turns.clone());
        running.spawn(async move {
            let _turn = turns.acquire_owned().await;
            (at, work.await)
        });
    }
    while let Some(finished) = running.join_next().await {
        match finished {
            Ok((at, result)) => results[at] = Some(result),
            Err(error) => tracing::error!(%error, "a piece of work was given up"),
        }
    }
    results
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn results_come_in_the_order_of_the_items() {
        let slow_first = super::run((0..20_u64).collect(), |n| async move {
            tokio::time::sleep(std::time::Duration::from_millis(20 - n)).await;
            assert_ne!(n, 7, "one that panics");
            n
        });
        let wanted: Vec<Option<u64>> = (0..20).map(|n| (n != 7).then_some(n)).collect();
        assert_eq!(slow_first.await, wanted);
    }
}
