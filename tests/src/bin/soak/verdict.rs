//! Whether something grew: the medians of a soak's first quarter and of its last, after a warm-up.

use std::fmt;

use anyhow::{Result, ensure};

use crate::sample::Sample;

/// Share of the samples that are left out at the begin, while pools and caches fill.
const WARM_UP: f64 = 0.2;

/// A quantity, and how much more there may be of it at the end: `factor` times as much, and `extra`.
struct Quantity {
    name: &'static str,
    of: fn(&Sample) -> f64,
    factor: f64,
    extra: f64,
}

/// The extras are for what comes in large pieces: an arena of the allocator, a thread, a worker more than before.
const QUANTITIES: [Quantity; 7] = [
    Quantity { name: "memory, MB", of: |s| s.memory, factor: 1.2, extra: 8.0 },
    Quantity { name: "open files", of: |s| s.files, factor: 1.2, extra: 8.0 },
    Quantity { name: "threads", of: |s| s.threads, factor: 1.2, extra: 4.0 },
    // The log grows with the work, up to its own bounds, and no faster.
    Quantity { name: "rows a step", of: |s| s.rows / s.step.max(1.0), factor: 1.2, extra: 1.0 },
    Quantity { name: "data folder without the log, MB", of: |s| s.data, factor: 1.2, extra: 4.0 },
    Quantity { name: "connected workers", of: |s| s.workers, factor: 1.2, extra: 3.0 },
    Quantity { name: "series of workers", of: |s| s.series, factor: 1.2, extra: 100.0 },
];

/// What came of a soak.
pub(crate) struct Verdict {
    mode: &'static str,
    disturbed: usize,
    minutes: f64,
    /// Steps done at the begin, after each quarter but the last, and at the end.
    steps: [f64; 5],
    /// Name, first, last, and the most that is allowed.
    rows: Vec<(&'static str, f64, f64, f64)>,
    /// Files open when everybody had gone.
    files_left: f64,
}

impl Verdict {
    /// # Errors
    /// When there are too few samples.
    pub(crate) fn of(
        mode: &'static str,
        disturbed: usize,
        samples: &[Sample],
        gone: &Sample,
    ) -> Result<Self> {
        let warm = &samples[(samples.len() as f64 * WARM_UP) as usize..];
        let quarter = warm.len() / 4;
        ensure!(quarter >= 2, "{} samples are too few: let it run for longer", samples.len());
        let rows = QUANTITIES.iter().map(|Quantity { name, of, factor, extra }| {
            let first = median(warm[..quarter].iter().map(of).collect());
            let last = median(warm[warm.len() - quarter..].iter().map(of).collect());
            (*name, first, last, first * factor + extra)
        });
        // A run that goes back to a snapshot has done the steps all the same.
        let furthest =
            |end: usize| samples[..end].iter().fold(0.0, |most: f64, sample| most.max(sample.step));
        let begin = samples.len() - warm.len();
        let steps = [1, 2, 3, 4].map(|place| begin + place * quarter);
        Ok(Self {
            mode,
            disturbed,
            minutes: samples.last().map_or(0.0, |sample| sample.seconds / 60.0),
            steps: [
                furthest(begin.max(1)),
                furthest(steps[0]),
                furthest(steps[1]),
                furthest(steps[2]),
                furthest(samples.len()),
            ],
            rows: rows.collect(),
            files_left: gone.files,
        })
    }

    /// What is wrong, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let grown = self.rows.iter().filter(|(_, _, last, most)| last > most);
        let mut faults: Vec<String> = grown
            .map(|(name, first, last, most)| {
                format!(
                    "{} mode: {name} went from {first:.1} to {last:.1}, at most {most:.1} is allowed",
                    self.mode
                )
            })
            .collect();
        if let Some(quarter) = self.steps.windows(2).position(|pair| pair[0] >= pair[1]) {
            faults.push(format!("{} mode: no step was done in quarter {}", self.mode, quarter + 1));
        }
        faults
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, disturbed, minutes, steps, rows, files_left } = self;
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:.0}")).collect();
        writeln!(
            f,
            "{mode} mode, {minutes:.1} minutes, {disturbed} disturbances; steps after the warm-up and each quarter: {}; \
             {files_left:.0} files open after everybody had gone",
            steps.join(", ")
        )?;
        writeln!(f, "\n| median of | first quarter | last quarter | allowed |\n|---|---:|---:|---:|")?;
        for (name, first, last, most) in rows {
            writeln!(f, "| {name} | {first:.1} | {last:.1} | {most:.1} |")?;
        }
        Ok(())
    }
}

/// The middle one; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(change: impl Fn(f64, &mut Sample)) -> Vec<Sample> {
        (0..100)
            .map(|number| {
                let at = f64::from(number);
                let mut sample =
                    Sample { seconds: at, step: at, memory: 50.0, files: 30.0, ..Sample::default() };
                change(at, &mut sample);
                sample
            })
            .collect()
    }

    fn faults(change: impl Fn(f64, &mut Sample)) -> Vec<String> {
        Verdict::of("some", 9, &samples(change), &Sample::default()).unwrap().faults()
    }

    #[test]
    fn what_stays_is_fine_and_what_grows_is_named() {
        assert_eq!(faults(|_, _| {}), [""; 0]);
        // While it warms up.
        assert_eq!(faults(|at, sample| sample.memory = 50.0 + at.min(15.0)), [""; 0]);
        for (name, grown) in [
            ("memory", faults(|at, sample| sample.memory += at)),
            ("open files", faults(|at, sample| sample.files += at)),
            ("rows a step", faults(|at, sample| sample.rows = at * at)),
        ] {
            assert_eq!(grown.len(), 1, "{grown:?}");
            assert!(grown[0].contains(name), "{grown:?}");
        }
    }

    #[test]
    fn a_run_that_stands_still_is_noticed_and_one_that_goes_back_is_not() {
        assert_eq!(faults(|at, sample| sample.step = if at < 70.0 { at } else { 60.0 }).len(), 1);
        assert_eq!(faults(|at, sample| sample.step = at - at % 7.0), [""; 0]);
    }
}
