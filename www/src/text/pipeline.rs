//! Pipeline mode in words.

use protocol::{
    spec::{Hop, ModelSpec},
    view::{RunView, WorkerView},
};

use super::{
    Tone, Words, capital,
    mode::{Column, ModeText},
    numbers::{NONE, count, percent, plural, rough, seconds},
    run::tokenizer,
    say, worker,
};
use crate::state::{
    activity::Status,
    facts::{busy_and_spare, is_over, parameters},
    places::Position,
    session::{Session, Stage},
    shares::total,
};

/// The words of pipeline mode.
pub(crate) struct PipelineText;

impl ModeText for PipelineText {
    fn about(&self, run: &RunView) -> String {
        let model = format!(
            "A language model of {} and {} parameters",
            plural(run.run.model.layers.into(), "layer", "layers"),
            rough(run.parameters)
        );
        if is_over(run.phase) {
            return format!("{model} has learned from {}, on devices like this one.", run.corpus);
        }
        let split = match busy_and_spare(run).0 {
            1 => "It can be split across devices; at present one device holds all of it.",
            _ => "It is split across the devices that take part: each trains some of the layers.",
        };
        format!("{model} is learning from {}. {split}", run.corpus)
    }

    fn task(&self, run: &RunView) -> String {
        format!(
            "The model predicts the next token of a text. The loss is the cross-entropy of its predictions, in nats per \
             token: lower is better. There are {} tokens to learn from, {}.",
            rough(run.train_tokens),
            tokenizer(&run.tokenizer),
        )
    }

    fn status(&self, status: Status) -> Words {
        match status {
            Status::Finished => {
                say(Tone::Good, "Run finished", "The last step is done. Thank you for taking part.")
            }
            Status::Stopped => say(Tone::Calm, "Run stopped", "The organizer ended the run."),
            Status::Silent => say(
                Tone::Warn,
                "No answer",
                "Nothing has come from the coordinator for some seconds. This device goes on as soon as it answers.",
            ),
            Status::Paused => say(
                Tone::Warn,
                "Paused",
                "The organizer has paused the run. This device keeps its part and goes on when the run is resumed.",
            ),
            Status::Waiting => say(
                Tone::Calm,
                "Waiting for the run",
                "This device is ready. The run begins when enough devices are here and the organizer starts it.",
            ),
            Status::Benchmarking => say(
                Tone::Busy,
                "Measuring this device",
                "A few seconds of trial work show how large a part of the model suits it.",
            ),
            Status::Spare => say(
                Tone::Calm,
                "Standing by",
                "Other devices hold all parts of the model for now. This one takes a part when another leaves or when \
                 the plan changes. You can leave it waiting.",
            ),
            Status::Loading => {
                say(Tone::Busy, "Loading its part", "Fetching or initialising the weights of its layers.")
            }
            Status::Ready => {
                say(Tone::Busy, "Ready", "Its part is loaded. Other devices are still loading theirs.")
            }
            Status::Training => say(Tone::Good, "Training", "This device trains its part of the model."),
            Status::Evaluating => {
                say(Tone::Good, "Evaluating", "This device evaluates the model on held-out text.")
            }
        }
    }

    fn now(&self, session: &Session, _run: Option<&RunView>) -> Option<String> {
        let model = &session.run.as_ref()?.model;
        if session.hops.is_empty() || !matches!(session.stage, Stage::Loading | Stage::Training) {
            return None;
        }
        let held = capital(&part(&session.hops, model));
        Some(match &session.work {
            Some(work) if session.stage == Stage::Training => {
                format!("{held}. Step {} took {}.", count(work.step), seconds(total(&work.timings)))
            }
            _ => format!("{held}."),
        })
    }

    fn own_progress(&self, session: &Session) -> Option<String> {
        session.work.as_ref().map(|work| format!("step {}", count(work.step)))
    }

    fn progress(&self, run: &RunView) -> String {
        format!("step {}", count(run.step))
    }

    fn part(&self) -> &'static str {
        "Part"
    }

    fn held(&self, worker: &WorkerView, run: &RunView) -> String {
        capital(&part(&worker.hops, &run.run.model))
    }

    fn columns(&self) -> [Column; 4] {
        let step = |worker: &WorkerView| match total(&worker.timings) {
            0.0 => NONE.to_owned(),
            time => seconds(time),
        };
        [
            Column { name: "Step", read: step },
            Column { name: "Round trip", read: worker::round_trip },
            Column { name: "Memory", read: worker::memory },
            Column { name: "Accepted", read: |worker| count(worker.accepted_micro_batches) },
        ]
    }

    fn removal(&self) -> &'static str {
        "Its part goes to another device, and the run goes back to the last snapshot."
    }

    fn absence(&self) -> &'static str {
        "The run survives that: your part goes to another device, and this one joins again when you come back."
    }

    fn numbers_sent(&self) -> &'static str {
        "Tensors, that is tables of numbers: activations, gradients, and the weights of your part, through the \
         coordinator."
    }

    fn text_received(&self) -> &'static str {
        "The text that the model learns from comes from the coordinator and goes only to the devices with the first and \
         the last part."
    }

    fn sends(&self, hops: &[Hop]) -> &'static str {
        let first = hops.iter().any(|hop| hop.part.embedding);
        let last = hops.iter().any(|hop| hop.part.head);
        match (first, last) {
            (true, true) => {
                "Your device holds the first and the last part of the model. It gets the text from the coordinator."
            }
            (true, false) => {
                "Your device holds the first part: the coordinator sends it the text to learn from, and it sends activations \
                 on to the next device."
            }
            (false, true) => {
                "Your device holds the last part: it compares the model's predictions with the text, which the coordinator \
                 sends it, and sends gradients back."
            }
            (false, false) => {
                "Your device holds a middle part: it never sees the text, only activations and gradients, which it \
                 transforms and passes on."
            }
        }
    }

    fn order(&self) -> &'static str {
        "Activations pass through the devices in this order, gradients come back the other way. "
    }
}

/// "the embedding and layers 1 to 4 of 12".
pub(crate) fn part(hops: &[Hop], model: &ModelSpec) -> String {
    let layers = model.layers;
    let mut parts = Vec::new();
    if hops.iter().any(|hop| hop.part.embedding) {
        parts.push("the embedding".to_owned());
    }
    for hop in hops {
        let (first, last) = (hop.part.first_layer + 1, hop.part.end_layer);
        match last.checked_sub(first) {
            Some(0) => parts.push(format!("layer {first} of {layers}")),
            Some(_) => parts.push(format!("layers {first} to {last} of {layers}")),
            None => {}
        }
    }
    if hops.iter().any(|hop| hop.part.head) {
        parts.push("the head".to_owned());
    }
    match parts.pop() {
        None => "nothing for now".to_owned(),
        Some(last) if parts.is_empty() => last,
        Some(last) => format!("{} and {last}", parts.join(", ")),
    }
}

/// What part of the model this device holds, and how much of it that is.
pub(crate) fn mine(hops: &[Hop], model: &ModelSpec) -> String {
    if hops.is_empty() {
        return "This device holds no part of it now.".to_owned();
    }
    format!(
        "Yours: {}. That is {} of the model's {} parameters.",
        part(hops, model),
        rough(parameters(hops, model)),
        rough(model.parameters()),
    )
}

/// Reads the picture of the model out.
pub(crate) fn strip_label(hops: &[Hop], model: &ModelSpec) -> String {
    format!("The model: an embedding, {} layers and a head. Marked: {}.", model.layers, part(hops, model))
}

/// How well the devices are used: share of time at work, and mean over longest work.
pub(crate) fn utilisation(run: &RunView) -> Option<String> {
    Some(format!(
        "In the last step the devices computed {} of the time. Balance between them: {}, where 100 % means that all take \
         equally long.",
        percent(run.efficiency?),
        percent(run.balance?)
    ))
}

/// What stands below a position of the pipeline.
pub(crate) fn notes(position: &Position) -> Vec<String> {
    let slow = position.slowest.then(|| "The slowest: the others wait for it.".to_owned());
    let also = position.also.map(|also| format!("The same device as position {}.", also + 1));
    worker::pace(&position.worker).into_iter().chain(slow).chain(also).collect()
}

pub(crate) const TITLE: &str = "The pipeline";
pub(crate) const EMPTY: &str = "No device holds a part of the model yet.";
pub(crate) const EMBEDDING: &str = "Embedding";
pub(crate) const HEAD: &str = "Head";

#[cfg(test)]
mod tests {
    use protocol::view::Phase;

    use super::*;
    use crate::state::fixtures::{at_layers, hop, model, pipeline};

    #[test]
    fn parts_are_counted_from_one() {
        let said = |hops: &[Hop]| part(hops, &model(false));
        assert_eq!(said(&[hop(0, true, 0, 4, false)]), "the embedding and layers 1 to 4 of 12");
        assert_eq!(said(&[hop(1, false, 4, 5, false)]), "layer 5 of 12");
        assert_eq!(said(&[hop(0, true, 0, 12, true)]), "the embedding, layers 1 to 12 of 12 and the head");
        assert_eq!(
            said(&[hop(0, true, 0, 0, false), hop(2, false, 12, 12, true)]),
            "the embedding and the head"
        );
        assert_eq!(said(&[]), "nothing for now");
    }

    #[test]
    fn one_device_with_the_whole_model_is_told_so() {
        let mut run = pipeline(Phase::Training);
        run.workers = vec![at_layers(1, "Ada", hop(0, true, 0, 12, true))];
        assert!(PipelineText.about(&run).contains("one device holds all of it"));
        run.workers = vec![
            at_layers(1, "Ada", hop(0, true, 0, 6, false)),
            at_layers(2, "Blaise", hop(1, false, 6, 12, true)),
        ];
        assert!(PipelineText.about(&run).contains("split across the devices"));
        run.phase = Phase::Finished;
        assert!(PipelineText.about(&run).contains("has learned from"));
    }
}
