//! Regimes: who comes too late, and what it costs.

use super::{Case, Lab, Page, page::holds, plot::Plot, setting, statistics::Estimate};
use crate::commands::simulate;
use simulation::{Outcome, Plan, REGIMES, Regime};

/// Regimes tried with learned deadlines too.
const ADAPTIVE: [&str; 3] = ["wan-tight", "edge-mid", "bad-edge"];
/// Rounds between two measurements.
const EVERY: u64 = 4;

pub(super) fn run(lab: &Lab) -> anyhow::Result<Page> {
    let (steps, every) = if lab.quick { (20, 10) } else { (200, 10 * EVERY) };
    let mut config = lab.config(3, 3, steps, "[rounds]\nlocal_steps = 10\ndraws = 4\n")?;
    config.training.validate_every = every;
    let mut names = Vec::new();
    let mut cases = Vec::new();
    let plans = REGIMES.into_iter().map(|regime| (regime, false));
    let adaptive = ADAPTIVE.into_iter().filter_map(Regime::named).map(|regime| (regime, true));
    for (regime, adaptive) in plans.chain(adaptive) {
        names.push(format!("{}{}", regime.name, if adaptive { ", adaptive" } else { "" }));
        let deadline = adaptive.then(|| simulate::adaptive(&config));
        let plan = Plan { deadline, ..Plan::new(regime, 6, 0) };
        cases.push(Case { config: config.clone(), plan });
    }
    let outcomes = lab.runs(&cases)?;
    let each = |get: &dyn Fn(&Outcome) -> f64| -> Vec<Estimate> {
        outcomes.iter().map(|seeds| Estimate::of(seeds.iter().map(get))).collect()
    };
    let participation = each(&|o| o.participation);
    let last = each(&|o| o.scores.as_ref().map_or(f64::NAN, |s| s.one_draw));
    let wall = each(&|o| o.seconds);
    let round = each(&|o| o.round_seconds);
    let (down, up) = (each(&|o| o.bytes_down / 1e3), each(&|o| o.bytes_up / 1e3));
    let measured: Vec<u64> = (1..=config.training.steps / every).map(|number| number * every).collect();
    let at = |seeds: &[Outcome], step: u64| {
        let score = |outcome: &Outcome| {
            outcome.curve.iter().find(|point| point.step == step).and_then(|point| point.validation_loss)
        };
        let scores: Vec<f64> = seeds.iter().filter_map(score).collect();
        (!scores.is_empty()).then(|| Estimate::of(scores))
    };
    let curve = |seeds: &Vec<Outcome>| measured.iter().map(|step| at(seeds, *step)).collect::<Vec<_>>();
    let early: Vec<Option<Estimate>> = outcomes.iter().map(|seeds| at(seeds, measured[0])).collect();
    let plot = Plot {
        y: "cross-entropy of one draw, nats per token, after so many rounds".into(),
        places: measured
            .iter()
            .map(|step| (step / u64::from(config.rounds.local_steps)).to_string())
            .collect(),
        series: names.iter().cloned().zip(outcomes.iter().map(curve)).collect(),
        joined: true,
    };
    let more = "Three blocks of one layer, six workers. The regimes' numbers, chosen by us, are in \
                `simulation/src/regime.rs`.";
    let first = format!("one draw after {} rounds", measured[0] / u64::from(config.rounds.local_steps));
    let header = [
        "regime",
        "participation",
        first.as_str(),
        "at the end",
        "virtual seconds",
        "of a round",
        "kB down a delta",
        "kB up",
    ];
    let mut page = Page::new("Workers and links", setting(lab, &config, more), &header, plot);
    for (row, name) in names.iter().enumerate() {
        let whole = |e: Estimate| format!("{:.0} ± {:.0}", e.mean, e.error);
        page.rows.push(vec![
            name.clone(),
            participation[row].to_string(),
            early[row].map_or("-".into(), |e| e.to_string()),
            last[row].to_string(),
            whole(wall[row]),
            format!("{:.1} ± {:.1}", round[row].mean, round[row].error),
            whole(down[row]),
            whole(up[row]),
        ]);
    }
    page.expected = "Participation falls from lockstep to the tight and bad regimes, and early rounds order by it; adaptive \
                     deadlines bring it back for more time."
        .into();
    let fixed = REGIMES.len();
    let agree = (0..fixed)
        .flat_map(|a| (a + 1..fixed).map(move |b| (a, b)))
        .filter(|&(a, b)| (participation[a].mean - participation[b].mean).abs() > 0.05)
        .filter_map(|(a, b)| {
            let lower = participation[a].mean < participation[b].mean;
            Some((early[a]?.mean > early[b]?.mean) == lower)
        });
    let agree: Vec<bool> = agree.collect();
    page.seen.push(format!(
        "Of {} pairs of fixed regimes that differ by more than 0.05 in participation, {} have the early cross-entropy in \
         that order.",
        agree.len(),
        agree.iter().filter(|agree| **agree).count()
    ));
    for (row, name) in names.iter().enumerate().skip(fixed) {
        let Some(same) = REGIMES.iter().position(|regime| name.starts_with(&format!("{},", regime.name)))
        else {
            continue;
        };
        page.seen.push(format!(
            "{name}: participation {:.2} in place of {:.2}, for {:.1} times the time; reaching 0.86 {}.",
            participation[row].mean,
            participation[same].mean,
            wall[row].mean / wall[same].mean,
            holds(participation[row].mean >= 0.86)
        ));
    }
    Ok(page)
}
