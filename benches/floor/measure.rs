//! Rounds, samples, ratios.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::place::Place;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Files of the large repository, of 5 KiB each.
    pub large_files: usize,
    /// Its commits.
    pub large_commits: usize,
    /// Worktrees of the repository with many of them.
    pub many: usize,
    /// Worktrees that stand before the one whose creation is timed.
    pub crowd: usize,
    /// Records of the list without status, and the repositories they belong to.
    pub records: (usize, usize),
    /// Lands that are queued at once.
    pub lands: usize,
    /// Worktrees that are made at once.
    pub at_once: usize,
    /// Rounds of what takes long.
    pub rounds: usize,
    /// Calls of what takes microseconds.
    pub calls: usize,
    /// Seconds for which the idle worker is watched.
    pub idle_s: u64,
}

impl Size {
    /// What the published figures are made with.
    pub fn full() -> Self {
        Size {
            large_files: 20_000,
            large_commits: 200,
            many: 300,
            crowd: 499,
            records: (5_000, 50),
            lands: 40,
            at_once: 20,
            rounds: 7,
            calls: 2_000,
            idle_s: 20,
        }
    }

    /// Enough to see that everything still runs.
    pub fn quick() -> Self {
        Size {
            large_files: 200,
            large_commits: 4,
            many: 6,
            crowd: 5,
            records: (40, 4),
            lands: 4,
            at_once: 4,
            rounds: 1,
            calls: 40,
            idle_s: 1,
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was done.
    pub work: String,
    /// What it is held against.
    pub floor: String,
    /// The product's figure: milliseconds at the median, unless `unit` says otherwise.
    pub ours: f64,
    /// The floor's.
    pub floor_value: f64,
    /// Ours divided by the floor's.
    pub ratio: f64,
    /// The ratio that is aimed for.
    pub target: f64,
    /// What both figures count.
    pub unit: &'static str,
    /// Rounds of each.
    pub rounds: usize,
}

impl Row {
    /// Whether the target is reached.
    pub fn is_met(&self) -> bool {
        self.ratio <= self.target
    }
}

/// A figure that grows with something: points of (how many, milliseconds).
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// What was done.
    pub work: String,
    /// What grows.
    pub over: String,
    /// How many, and the milliseconds of the product.
    pub ours: Vec<(f64, f64)>,
    /// How many, and the milliseconds of the floor.
    pub floor: Vec<(f64, f64)>,
}

impl Curve {
    /// Milliseconds more for a thousand more of what grows, by least squares.
    pub fn slope(points: &[(f64, f64)]) -> f64 {
        let count = points.len() as f64;
        let (mean_x, mean_y) =
            (points.iter().map(|p| p.0).sum::<f64>() / count, points.iter().map(|p| p.1).sum::<f64>() / count);
        let spread: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
        let slope: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum::<f64>() / spread;
        slope * 1000.0
    }
}

/// The run: what is wanted of it, and what it has found so far.
pub struct Bench {
    /// How much is measured.
    pub size: Size,
    /// Where the repositories lie.
    pub place: Place,
    wanted: Vec<String>,
    /// The rows so far.
    pub rows: Vec<Row>,
    /// The curves so far.
    pub curves: Vec<Curve>,
}

impl Bench {
    /// Nothing is measured yet.
    pub fn new(size: Size, wanted: Vec<String>) -> anyhow::Result<Self> {
        Ok(Bench { size, place: Place::new()?, wanted, rows: Vec::new(), curves: Vec::new() })
    }

    /// Whether rows of this name are to be measured.
    pub fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| name.starts_with(wanted.as_str()))
    }

    /// Takes a row down, of samples that were taken alternately.
    pub fn row(&mut self, work: &str, floor: &str, target: f64, samples: &Samples) {
        self.row_at(work, floor, target, samples, 0.5);
    }

    /// The same at another quantile.
    pub fn row_at(&mut self, work: &str, floor: &str, target: f64, samples: &Samples, quantile: f64) {
        let (ours, floor_value) = (samples.ours.at(quantile), samples.floor.at(quantile));
        self.keep(Row {
            work: work.to_owned(),
            floor: floor.to_owned(),
            ours,
            floor_value,
            ratio: ours / floor_value,
            target,
            unit: "ms",
            rounds: samples.ours.0.len(),
        });
    }

    /// Takes a row down and prints it.
    pub fn keep(&mut self, row: Row) {
        eprintln!(
            "{}  {}: {:.3} {}, {}: {:.3}, ratio {:.2}, target {:.2}",
            if row.is_met() { "met   " } else { "missed" },
            row.work,
            row.ours,
            row.unit,
            row.floor,
            row.floor_value,
            row.ratio,
            row.target
        );
        self.rows.push(row);
    }
}

/// Milliseconds, one a round.
#[derive(Debug, Default, Clone)]
pub struct Times(Vec<f64>);

impl Times {
    /// Takes one down.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1000.0);
    }

    /// Takes those of another down, too.
    pub fn extend(&mut self, others: Times) {
        self.0.extend(others.0);
    }

    /// The sample below which this part of all lies.
    pub fn at(&self, quantile: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * quantile).round() as usize).copied().unwrap_or(f64::NAN)
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.at(0.5)
    }
}

/// What a pair of measurements gave.
#[derive(Debug, Default, Clone)]
pub struct Samples {
    /// The product's.
    pub ours: Times,
    /// The floor's.
    pub floor: Times,
}

/// How long this takes.
pub async fn timed<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(Duration, T)> {
    let start = Instant::now();
    let done = work.await?;
    Ok((start.elapsed(), done))
}
