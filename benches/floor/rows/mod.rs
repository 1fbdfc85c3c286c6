//! The rows of the table, by subject.

mod bus;
mod create;
mod growth;
mod idle;
mod land;
mod look;
mod remove;

use crate::measure::Bench;

/// Measures all that is wanted.
pub async fn all(bench: &mut Bench) -> anyhow::Result<()> {
    create::rows(bench).await?;
    look::rows(bench).await?;
    land::rows(bench).await?;
    remove::rows(bench).await?;
    bus::rows(bench).await?;
    idle::rows(bench).await?;
    growth::curves(bench).await
}
