//! Encodings of deltas: bytes against cross-entropy.

use super::{Case, Lab, Page, plot::Plot, setting, statistics::Estimate};
use simulation::{Outcome, Plan, REGIMES};

pub(super) fn run(lab: &Lab) -> anyhow::Result<Page> {
    let encodings = [
        ("f32", "delta = \"f32\""),
        ("f16", "delta = \"f16\""),
        ("int8", "delta = \"int8\""),
        ("top-k 50 ‰", "delta = \"topk\"\ntop_k_per_mille = 50"),
        ("top-k 10 ‰", "delta = \"topk\"\ntop_k_per_mille = 10"),
    ];
    let mut cases = Vec::new();
    for (_, toml) in encodings {
        let config = lab.config(3, 3, 240, &format!("[rounds]\nlocal_steps = 10\n{toml}\n"))?;
        cases.push(Case { config, plan: Plan::new(REGIMES[0], 6, 0) });
    }
    let outcomes = lab.runs(&cases)?;
    let each = |get: &dyn Fn(&Outcome) -> f64| -> Vec<Estimate> {
        outcomes.iter().map(|seeds| Estimate::of(seeds.iter().map(get))).collect()
    };
    let one = |o: &Outcome| o.scores.as_ref().map_or(f64::NAN, |s| s.one_draw);
    let score = each(&one);
    let (down, up) = (each(&|o| o.bytes_down), each(&|o| o.bytes_up));
    // Against f32 with the same seed.
    let cost: Vec<Estimate> = outcomes
        .iter()
        .map(|seeds| Estimate::of(seeds.iter().zip(&outcomes[0]).map(|(o, f32s)| one(o) - one(f32s))))
        .collect();
    let plot = Plot {
        y: "cross-entropy of one draw minus that with f32, nats per token".into(),
        places: encodings.iter().map(|(name, _)| (*name).to_owned()).collect(),
        series: vec![("cost".into(), cost.iter().map(|e| Some(*e)).collect())],
        joined: false,
    };
    let more = "Three blocks of one layer, six workers in lockstep. Bytes are those of real frames and files, per accepted \
                delta; weights come down in f32.";
    let header = ["delta", "kB down", "kB up", "up against f32", "one draw", "minus f32's"];
    let mut page = Page::new("Encodings of deltas", setting(lab, &cases[0].config, more), &header, plot);
    for (row, (name, _)) in encodings.iter().enumerate() {
        page.rows.push(vec![
            (*name).to_owned(),
            format!("{:.1}", down[row].mean / 1e3),
            format!("{:.1}", up[row].mean / 1e3),
            format!("{:.3}", up[row].mean / up[0].mean),
            score[row].to_string(),
            cost[row].to_string(),
        ]);
    }
    page.expected = "f16 and int8 cost nothing that can be told from f32 for a half and about a quarter of the bytes up; \
                     top-k with error feedback costs something, more the less it sends."
        .into();
    for (row, (name, _)) in encodings.iter().enumerate().skip(1) {
        let clear = cost[row].mean.abs() > 2.0 * cost[row].error;
        page.seen.push(format!(
            "{name} sends {:.1} % of f32's bytes up for {:+.3} nats ({}).",
            100.0 * up[row].mean / up[0].mean,
            cost[row].mean,
            if clear { "beyond twice its error" } else { "within twice its error" }
        ));
    }
    Ok(page)
}
