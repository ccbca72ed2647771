//! As many layers in fewer blocks, beside autoregressive models that did as much work.

use super::{Case, Lab, Page, Reference, many_draws, page::holds, plot::Plot, setting, statistics::Estimate};
use crate::commands::reference::equal_steps;
use simulation::{Outcome, Plan, REGIMES};

const LAYERS: u32 = 4;

pub(super) fn run(lab: &Lab) -> anyhow::Result<Page> {
    let counts = [4u32, 2, 1];
    let mut cases = Vec::new();
    for count in counts {
        let config = lab.config(count, LAYERS, 400, "")?;
        cases.push(Case { config, plan: Plan::new(REGIMES[0], count, 0) });
    }
    let outcomes = lab.runs(&cases)?;
    let draws = many_draws(&cases);
    let mut references = Vec::new();
    for ((case, seeds), count) in cases.iter().zip(&outcomes).zip(counts) {
        let local_steps = seeds.first().map_or(0, |outcome| outcome.local_steps);
        let each = LAYERS / count;
        for layers in [each, LAYERS] {
            let steps = equal_steps(local_steps, each, layers);
            references.push(Reference { config: case.config.clone(), layers, steps });
        }
    }
    let losses = lab.references(&references)?;
    let each = |get: &dyn Fn(&protocol::evaluation::Scores) -> f64| -> Vec<Estimate> {
        let of = |seeds: &Vec<Outcome>| Estimate::of(seeds.iter().filter_map(|o| o.scores.as_ref()).map(get));
        outcomes.iter().map(of).collect()
    };
    let one = each(&|s| s.one_draw);
    let many = each(&|s| s.many_draws);
    let best = each(&|s| s.alone.iter().copied().fold(f64::INFINITY, f64::min));
    let of_block: Vec<Estimate> = losses.iter().step_by(2).map(|l| Estimate::of(l.iter().copied())).collect();
    let of_all: Vec<Estimate> =
        losses.iter().skip(1).step_by(2).map(|l| Estimate::of(l.iter().copied())).collect();
    let places: Vec<String> =
        counts.iter().map(|count| format!("B {count}, L_b {}", LAYERS / count)).collect();
    let columns = [
        ("one draw", &one),
        (draws.as_str(), &many),
        ("best block alone", &best),
        ("AR of L_b layers", &of_block),
        ("AR of B L_b layers", &of_all),
    ];
    let series =
        columns.iter().map(|(name, values)| ((*name).to_owned(), values.iter().map(|v| Some(*v)).collect()));
    let plot = Plot {
        y: "cross-entropy, nats per token".into(),
        places: places.clone(),
        series: series.collect(),
        joined: false,
    };
    let more = "Four layers in all, a worker for each block, in lockstep. The references (AR) are GPT-2s with as much \
                layer work as the whole block run.";
    let header =
        ["model", "one draw", draws.as_str(), "best block alone", "AR of L_b layers", "AR of B L_b layers"];
    let mut page = Page::new("Blocks and depth", setting(lab, &cases[0].config, more), &header, plot);
    for (row, place) in places.iter().enumerate() {
        let numbers = columns.iter().map(|(_, values)| values[row].to_string());
        page.rows.push(std::iter::once(place.clone()).chain(numbers).collect());
    }
    page.expected = "More layers in each of fewer blocks are better at equal depth. One draw lies above the AR reference \
                     of L_b layers, by 0.2 to 0.35; the chain is no better than its best block alone."
        .into();
    page.seen.push(format!(
        "That deeper blocks are better {} in one draw ({}, {}, {}).",
        holds(one[0].mean > one[1].mean && one[1].mean > one[2].mean),
        one[0],
        one[1],
        one[2]
    ));
    for (row, place) in places.iter().enumerate() {
        page.seen.push(format!(
            "{place}: one draw lies {:.3} above the AR reference of L_b layers, {:.3} above that of all layers, and {:.3} \
             above the best block alone.",
            one[row].mean - of_block[row].mean,
            one[row].mean - of_all[row].mean,
            one[row].mean - best[row].mean
        ));
    }
    Ok(page)
}
