//! Greedy texts of `transformers`: `decode.json`.

use std::collections::BTreeMap;

use engine::{
    device::Device,
    generate::{Decoder, Request, Sampling},
    parameters::ParameterSet,
};
use protocol::spec::Hop;
use serde::Deserialize;

use super::{GoldenError, Report, Source, files, gpt2};

#[derive(Deserialize)]
struct Golden {
    texts: BTreeMap<String, Vec<Text>>,
}

#[derive(Deserialize)]
struct Text {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
}

/// All texts of a model in one batch, without drafts and with them. Where the window slides, every token costs a
/// pass over it: the processor alone does that.
pub(super) async fn check(
    source: Source<'_>,
    device: &Device,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let golden: Golden = files::json(source, "decode.json")?;
    for (set, texts) in &golden.texts {
        let model = gpt2::model(set, source)?;
        let weights = files::bytes(source, &format!("{set}.weights.safetensors"))?;
        let failed = |error| GoldenError::Stage { place: format!("decoding with {set}"), error };
        for drafts in [0, 4] {
            let hops = [Hop { index: 0, part: model.whole() }];
            let parameters = ParameterSet::import(&model, &hops, &[&weights], device)?;
            let mut decoder = Decoder::new(&model, parameters, device).map_err(failed)?;
            let mut found = BTreeMap::new();
            for Text { prompt, tokens } in texts {
                let fits = prompt.len() + tokens.len() <= model.positions as usize + 1;
                if fits || matches!(device, Device::Cpu) {
                    let request = Request::new(prompt.clone(), tokens.len(), Sampling::GREEDY);
                    let id = decoder.open(Request { drafts, ..request }).map_err(failed)?;
                    found.insert(id, (tokens, Vec::new()));
                }
            }
            while decoder.open_texts() > 0 {
                for step in decoder.step().await.map_err(failed)? {
                    if let Some((_, written)) = found.get_mut(&step.text) {
                        written.extend(step.progress.written.iter().map(|token| token.id));
                    }
                }
            }
            for (number, (tokens, written)) in found.into_values().enumerate() {
                let differ = tokens.iter().zip(&written).filter(|(golden, found)| golden != found).count();
                let missing = tokens.len().abs_diff(written.len());
                // Token for token: one that differs is outside of any tolerance.
                report.note("greedy texts", (differ + missing) as f64, 0.5, || {
                    format!("text {number} of {set} with {drafts} drafts: {written:?}, not {tokens:?}")
                });
            }
        }
    }
    Ok(())
}
