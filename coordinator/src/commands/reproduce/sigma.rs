//! Ranges of noise: below about 0.5 the target shines through, and the context is not needed to name it.

use super::{Case, Lab, Page, many_draws, page::holds, plot::Plot, setting, statistics::Estimate};
use simulation::{Outcome, Plan, Regime};

const RANGES: [(f64, f64); 5] = [(0.1, 2.0), (0.2, 2.0), (0.5, 2.0), (1.0, 5.0), (1.0, 10.0)];

pub(super) fn run(lab: &Lab) -> anyhow::Result<Page> {
    let lockstep = Regime::named("lockstep").unwrap_or(simulation::REGIMES[0]);
    let mut cases = Vec::new();
    for (low, high) in RANGES {
        let config = lab.config(3, 3, 500, &format!("sigma_min = {low}\nsigma_max = {high}\n"))?;
        cases.push(Case { config, plan: Plan::new(lockstep, 3, 0) });
    }
    let outcomes = lab.runs(&cases)?;
    let draws = many_draws(&cases);
    let list = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let each = |get: &dyn Fn(&protocol::evaluation::Scores) -> f64| -> Vec<Estimate> {
        let of = |seeds: &Vec<Outcome>| Estimate::of(seeds.iter().filter_map(|o| o.scores.as_ref()).map(get));
        outcomes.iter().map(of).collect()
    };
    let columns = [
        ("one draw", each(&|s| s.one_draw)),
        (draws.as_str(), each(&|s| s.many_draws)),
        ("local", each(&|s| list(&s.local))),
        ("local, scrambled", each(&|s| list(&s.scrambled))),
    ];
    let places: Vec<String> = RANGES.iter().map(|(low, high)| format!("[{low}, {high}]")).collect();
    let series = columns.iter().map(|(name, values)| {
        ((*name).to_owned(), values.iter().map(|value| Some(*value)).collect::<Vec<_>>())
    });
    let plot = Plot {
        y: "cross-entropy, nats per token".into(),
        places: places.clone(),
        series: series.collect(),
        joined: false,
    };
    let more = "Three blocks of one layer, a worker each, in lockstep. Local and scrambled are means over the blocks.";
    let header =
        ["sigma", "one draw from noise", draws.as_str(), "local (leaky)", "local, context scrambled"];
    let mut page = Page::new("Ranges of noise", setting(lab, &cases[0].config, more), &header, plot);
    for (row, place) in places.iter().enumerate() {
        let numbers = columns.iter().map(|(_, values)| values[row].to_string());
        page.rows.push(std::iter::once(place.clone()).chain(numbers).collect());
    }
    page.expected = "One draw from noise: [0.1, 2] worst, then [0.2, 2], then [0.5, 2], then [1, 10]; [1, 5] and [1, 10] \
                     tie. Low ranges have the best local cross-entropies, with or without the right context: they leak."
        .into();
    let one = &columns[0].1;
    let order = [(0, 1), (1, 2), (2, 4)];
    for (worse, better) in order {
        page.seen.push(format!(
            "That {} is worse than {} {} ({} against {}{}).",
            places[worse],
            places[better],
            holds(one[worse].mean > one[better].mean),
            one[worse],
            one[better],
            if one[worse].clearly_above(one[better]) { "" } else { "; not beyond the errors" }
        ));
    }
    page.seen.push(format!("[1, 5] and [1, 10] differ by {:.3}.", (one[3].mean - one[4].mean).abs()));
    let local = &columns[2].1;
    page.seen.push(format!(
        "Local cross-entropy is {:.3} at [0.1, 2] and {:.3} at [1, 10]; scrambling the context costs {:.3} and {:.3}.",
        local[0].mean,
        local[4].mean,
        columns[3].1[0].mean - local[0].mean,
        columns[3].1[4].mean - local[4].mean
    ));
    Ok(page)
}
