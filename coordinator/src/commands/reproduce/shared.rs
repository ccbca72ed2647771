//! Two workers at each block against one.

use super::{Case, Lab, Page, many_draws, page::holds, plot::Plot, setting, statistics::Estimate};
use simulation::{Outcome, Plan, REGIMES};

pub(super) fn run(lab: &Lab) -> anyhow::Result<Page> {
    let steps = 240;
    let mut cases = Vec::new();
    let names = ["3 workers, one a block", "6 workers, two a block", "3 workers, twice the rounds"];
    for (workers, times) in [(3, 1), (6, 1), (3, 2)] {
        let config = lab.config(3, 3, steps * times, "")?;
        cases.push(Case { config, plan: Plan::new(REGIMES[0], workers, 0) });
    }
    let outcomes = lab.runs(&cases)?;
    let draws = many_draws(&cases);
    let each = |get: &dyn Fn(&protocol::evaluation::Scores) -> f64| -> Vec<Estimate> {
        let of = |seeds: &Vec<Outcome>| Estimate::of(seeds.iter().filter_map(|o| o.scores.as_ref()).map(get));
        outcomes.iter().map(of).collect()
    };
    let (one, many) = (each(&|s| s.one_draw), each(&|s| s.many_draws));
    let plot = Plot {
        y: "cross-entropy, nats per token".into(),
        places: names.iter().map(|name| (*name).to_owned()).collect(),
        series: vec![
            ("one draw".into(), one.iter().map(|e| Some(*e)).collect()),
            (draws.clone(), many.iter().map(|e| Some(*e)).collect()),
        ],
        joined: false,
    };
    let more = "Three blocks of one layer, in lockstep. Rounds, and with them local steps of a worker, are equal in the \
                first two rows; the third does as much work in all as the second.";
    let header = ["workers", "local steps of all", "one draw", draws.as_str()];
    let mut page = Page::new("Blocks shared by workers", setting(lab, &cases[0].config, more), &header, plot);
    for (row, name) in names.iter().enumerate() {
        let steps = outcomes[row].first().map_or(0, |outcome| outcome.local_steps);
        page.rows.push(vec![
            (*name).to_owned(),
            steps.to_string(),
            one[row].to_string(),
            many[row].to_string(),
        ]);
    }
    page.expected = "Averaging two replicas is better than one replica for as many rounds, and not as good as one replica \
                     for twice as many."
        .into();
    page.seen.push(format!(
        "Two replicas better than one at equal rounds: {} ({} against {}{}).",
        holds(one[1].mean < one[0].mean),
        one[1],
        one[0],
        if one[0].clearly_above(one[1]) { "" } else { "; not beyond the errors" }
    ));
    page.seen.push(format!(
        "One replica for twice the rounds better than two: {} ({} against {}{}).",
        holds(one[2].mean < one[1].mean),
        one[2],
        one[1],
        if one[1].clearly_above(one[2]) { "" } else { "; not beyond the errors" }
    ));
    Ok(page)
}
