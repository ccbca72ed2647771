//! Hostile workers against aggregators, with and without the aggregation server's checks.

use std::collections::BTreeSet;

use super::{Case, Lab, Page, plot::Plot, setting, statistics::Estimate};
use simulation::{Behaviour, Outcome, Plan, REGIMES};

const AGGREGATORS: [&str; 5] = ["mean", "clip_to_median_norm", "trimmed_mean", "median", "centred_clip"];
const BEHAVIOURS: [Behaviour; 6] = [
    Behaviour::SignFlip(10.0),
    Behaviour::Noise(10.0),
    Behaviour::Scale(100.0),
    Behaviour::Zeros,
    Behaviour::Replay,
    Behaviour::Copy,
];
/// The aggregation server's checks: off, as usual, and with a tighter limit of lengths.
const CHECKS: [&str; 3] = ["off", "on", "on, norm_limit 3"];
/// A limit that honest deltas keep with ease.
const TIGHT: f64 = 3.0;

/// The tighter limit is tried on those that the usual one may let through.
fn tried(behaviour: Behaviour, checks: usize) -> bool {
    checks < 2 || matches!(behaviour, Behaviour::SignFlip(_) | Behaviour::Noise(_))
}

/// Hostile workers and all of them.
const CROWDS: [(u32, u32); 2] = [(1, 5), (2, 7)];
/// A cross-entropy beyond this is that of a broken model: even guesses cost 5.5.
const BROKEN: f64 = 8.0;

pub(super) fn run(lab: &Lab) -> anyhow::Result<Page> {
    let config = |aggregator: &str, hostile: u32| {
        let toml =
            format!("[rounds]\nlocal_steps = 5\naggregator = \"{aggregator}\"\ntrim = {}\n", hostile.max(1));
        let mut config = lab.config(1, 1, 40, &toml)?;
        config.training.sequences = 4;
        config.rounds.draws = 2;
        anyhow::Ok(config)
    };
    let behaviours: &[Behaviour] = if lab.quick { &BEHAVIOURS[..1] } else { &BEHAVIOURS };
    let mut cases = Vec::new();
    let mut keys = Vec::new();
    for (crowd, (hostile, workers)) in CROWDS.into_iter().enumerate() {
        for (rule, aggregator) in AGGREGATORS.into_iter().enumerate() {
            let config = config(aggregator, hostile)?;
            let honest = Plan::new(REGIMES[0], workers, 0);
            keys.push((crowd, rule, None));
            cases.push(Case { config: config.clone(), plan: honest.clone() });
            for (behaviour, of) in behaviours.iter().enumerate() {
                for checks in (0..CHECKS.len()).filter(|checks| tried(*of, *checks)) {
                    keys.push((crowd, rule, Some((behaviour, checks))));
                    let hostile = vec![*of; hostile as usize];
                    let plan = Plan { hostile, checks: checks > 0, ..honest.clone() };
                    let mut config = config.clone();
                    if checks == 2 {
                        config.rounds.norm_limit = TIGHT;
                    }
                    cases.push(Case { config, plan });
                }
            }
        }
    }
    let outcomes = lab.try_runs(&cases);
    let score = |outcome: &anyhow::Result<Outcome>| {
        let outcome = outcome.as_ref().ok()?;
        outcome.scores.as_ref().map(|scores| scores.one_draw).filter(|score| *score < BROKEN)
    };
    let find = |key| keys.iter().position(|other| *other == key).map(|at| &outcomes[at]);
    // Against the mean with nobody hostile and the same seed; None where any seed broke down.
    let cost = |crowd: usize, key| -> Option<Estimate> {
        let honest = find((crowd, 0, None))?;
        let differences =
            find(key)?.iter().zip(honest).map(|(outcome, honest)| Some(score(outcome)? - score(honest)?));
        Some(Estimate::of(differences.collect::<Option<Vec<_>>>()?))
    };
    let places: Vec<String> = behaviours.iter().map(|behaviour| behaviour.name()).collect();
    let line = |rule: usize| {
        let value = |behaviour: usize| cost(0, (0, rule, Some((behaviour, 0)))).filter(|e| e.mean < 2.0);
        (0..behaviours.len()).map(value).collect::<Vec<_>>()
    };
    let plot = Plot {
        y: "1 of 5 hostile, no checks: cross-entropy minus the honest run's (none: broken, or more than 2)"
            .into(),
        places,
        series: AGGREGATORS.iter().enumerate().map(|(rule, name)| ((*name).to_owned(), line(rule))).collect(),
        joined: false,
    };
    let more = "One block of one layer, so that all workers' deltas meet in one average, in lockstep; the trimmed mean drops \
                as many at either end as are hostile. Without checks the aggregation server takes copies, zeros and any size and \
                length. Numbers are the final cross-entropy of one draw minus that of the mean with nobody hostile and \
                the same seed; \"broken\" is a run that stopped, or is above 8 nats, with any seed.";
    let header = [
        "hostile",
        "checks",
        "behaviour",
        "mean",
        "clip to median",
        "trimmed mean",
        "median",
        "centred clip",
        "refused for (mean)",
    ];
    let mut page = Page::new("Hostile workers", setting(lab, &cases[0].config, more), &header, plot);
    let cell = |estimate: Option<Estimate>| estimate.map_or("broken".to_owned(), |e| e.to_string());
    let reasons = |key| -> String {
        let outcomes = find(key).into_iter().flatten().filter_map(|outcome| outcome.as_ref().ok());
        let names: BTreeSet<&str> = outcomes.flat_map(|o| o.refusals.keys().map(String::as_str)).collect();
        if names.is_empty() { "-".into() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
    };
    let mut broken = [(0, 0); CHECKS.len()];
    let mut worst = [[0.0f64; AGGREGATORS.len()]; CHECKS.len()];
    let mut culprits = BTreeSet::new();
    for (crowd, (hostile, workers)) in CROWDS.into_iter().enumerate() {
        let mut row = vec![format!("0 of {workers}"), "on".into(), "-".into()];
        row.extend((0..AGGREGATORS.len()).map(|rule| cell(cost(crowd, (crowd, rule, None)))));
        row.push("-".into());
        page.rows.push(row);
        for (checks, words) in CHECKS.into_iter().enumerate() {
            for (behaviour, of) in behaviours.iter().enumerate().filter(|(_, of)| tried(**of, checks)) {
                let mut row = vec![format!("{hostile} of {workers}"), words.into(), of.name()];
                for rule in 0..AGGREGATORS.len() {
                    let estimate = cost(crowd, (crowd, rule, Some((behaviour, checks))));
                    let (of_broken, of_all) = &mut broken[checks];
                    *of_broken += usize::from(estimate.is_none());
                    *of_all += 1;
                    if checks == 1 && estimate.is_none() {
                        culprits.insert(format!("{} against {}", of.name(), AGGREGATORS[rule]));
                    }
                    let worst = &mut worst[checks][rule];
                    *worst = estimate.map_or(f64::INFINITY, |e| worst.max(e.mean));
                    row.push(cell(estimate));
                }
                row.push(reasons((crowd, 0, Some((behaviour, checks)))));
                page.rows.push(row);
            }
        }
    }
    page.expected = "Without checks one hostile worker breaks the mean, and the robust aggregators hold; with checks on, \
                     zeros, copies, replays and absurd lengths do not reach the average, and every aggregator holds."
        .into();
    for (checks, words) in CHECKS.into_iter().enumerate() {
        let each: Vec<String> = AGGREGATORS
            .iter()
            .zip(&worst[checks])
            .map(|(name, worst)| match worst.is_finite() {
                true => format!("{name} {worst:+.3}"),
                false => format!("{name} broken"),
            })
            .collect();
        let (of_broken, of_all) = broken[checks];
        page.seen.push(format!(
            "With checks {words}, {of_broken} of {of_all} cells are broken; the worst of each aggregator: {}.",
            each.join(", ")
        ));
    }
    if !culprits.is_empty() {
        page.seen.push(format!(
            "What breaks a run in spite of the usual checks: {}. Their limit is {} times the typical length, and ten times \
             it the other way outweighs the honest workers in a mean: a run of strangers needs a tighter limit or a robust \
             aggregator.",
            culprits.into_iter().collect::<Vec<_>>().join(", "),
            cases[0].config.rounds.norm_limit
        ));
    }
    Ok(page)
}
