//! A run that only writes texts, in words.

use protocol::{
    spec::Hop,
    view::{RunView, WorkerView},
};

use super::{
    Tone, Words, capital,
    mode::{Column, ModeText},
    numbers::{plural, rough},
    pipeline::{PipelineText, part},
    say, worker,
};
use crate::state::{
    activity::Status,
    facts::{busy_and_spare, is_over},
    session::{Session, Stage},
};

/// The words of such a run.
pub(crate) struct ServeText;

impl ModeText for ServeText {
    fn about(&self, run: &RunView) -> String {
        let model = format!(
            "A language model of {} and {} parameters",
            plural(run.run.model.layers.into(), "layer", "layers"),
            rough(run.parameters)
        );
        if is_over(run.phase) {
            return format!("{model} has continued texts for visitors, on devices like this one.");
        }
        let split = match busy_and_spare(run).0 {
            1 => "It can be split across devices; at present one device holds all of it.",
            _ => "It is split across the devices that take part: each holds some of the layers.",
        };
        format!("{model} continues texts for visitors. {split} It is not trained.")
    }

    fn task(&self, _run: &RunView) -> String {
        "Every token of a text passes through all layers, from one device to the next. A device that leaves costs no \
         token: another takes its layers, and the text goes on."
            .to_owned()
    }

    fn status(&self, status: Status) -> Words {
        match status {
            Status::Training => {
                say(Tone::Good, "Serving", "This device holds its part of the model and computes texts.")
            }
            Status::Loading => say(Tone::Busy, "Loading its part", "Fetching the weights of its layers."),
            Status::Finished => say(Tone::Good, "Run finished", "Thank you for taking part."),
            Status::Waiting => say(
                Tone::Calm,
                "Waiting for the run",
                "This device is ready. The model can be asked when enough devices are here to hold it.",
            ),
            Status::Evaluating => PipelineText.status(Status::Evaluating),
            status => PipelineText.status(status),
        }
    }

    fn now(&self, session: &Session, _run: Option<&RunView>) -> Option<String> {
        let model = &session.run.as_ref()?.model;
        let holds = matches!(session.stage, Stage::Loading | Stage::Training) && !session.hops.is_empty();
        holds.then(|| format!("{}.", capital(&part(&session.hops, model))))
    }

    fn own_progress(&self, _session: &Session) -> Option<String> {
        None
    }

    fn progress(&self, run: &RunView) -> String {
        plural(busy_and_spare(run).0, "device", "devices")
    }

    fn part(&self) -> &'static str {
        PipelineText.part()
    }

    fn held(&self, worker: &WorkerView, run: &RunView) -> String {
        PipelineText.held(worker, run)
    }

    fn columns(&self) -> [Column; 4] {
        [
            Column { name: "Round trip", read: worker::round_trip },
            Column { name: "Link up", read: worker::link_up },
            Column { name: "Link down", read: worker::link_down },
            Column { name: "Memory", read: worker::memory },
        ]
    }

    fn removal(&self) -> &'static str {
        "Its part goes to another device. Texts that are being written go on as soon as that has loaded it."
    }

    fn absence(&self) -> &'static str {
        "Texts survive that: your part goes to another device, and this one joins again when you come back."
    }

    fn numbers_sent(&self) -> &'static str {
        "Tensors, that is tables of numbers: activations, through the coordinator; with the last part also the tokens \
         that come next in a text."
    }

    fn text_received(&self) -> &'static str {
        "The texts of visitors go, as tokens, to the devices with the first and the last part."
    }

    fn sends(&self, hops: &[Hop]) -> &'static str {
        let first = hops.iter().any(|hop| hop.part.embedding);
        let last = hops.iter().any(|hop| hop.part.head);
        match (first, last) {
            (true, true) => {
                "Your device holds the first and the last part of the model. It gets texts from visitors."
            }
            (true, false) => {
                "Your device holds the first part: the coordinator sends it the texts of visitors, and it sends \
                 activations on to the next device."
            }
            (false, true) => {
                "Your device holds the last part: it chooses the next token of each text from the model's predictions."
            }
            (false, false) => {
                "Your device holds a middle part: it never sees a text, only activations, which it transforms and \
                 passes on."
            }
        }
    }

    fn order(&self) -> &'static str {
        "Activations pass through the devices in this order, once for each token."
    }
}
