//! The playground page in words.

use protocol::serving::{ModelView, Place, ServingView};

use super::{
    numbers::{about, count, plural, rough},
    sentence,
};
use crate::state::writing::Stage;

pub(crate) const HEADING: &str = "Try the model";
pub(crate) const WRITE_TITLE: &str = "Let it continue a text";
pub(crate) const PROMPT: &str = "Your text";
pub(crate) const LENGTH: &str = "Length, in tokens";
pub(crate) const TEMPERATURE: &str = "Temperature";
pub(crate) const TEMPERATURE_NOTE: &str = "0 always takes the likeliest token; 1 draws as the model predicts";
pub(crate) const TOP_P: &str = "Top-p";
pub(crate) const TOP_P_NOTE: &str = "draw only among the likeliest tokens that make up this share";
pub(crate) const SEED: &str = "Seed";
pub(crate) const SEED_NOTE: &str = "the same seed gives the same text; empty draws a new one";
pub(crate) const CHUNK: &str = "Tokens of one sweep";
pub(crate) const CHUNK_NOTE: &str = "1 writes token by token. The tokens of one sweep know only guesses of each other: faster, and poorer text";
pub(crate) const SETTINGS: &str = "How it chooses";
pub(crate) const WRITE: &str = "Write";
pub(crate) const STOP: &str = "Stop";
pub(crate) const RESULT: &str = "What it wrote";
pub(crate) const AGES_TITLE: &str = "What it wrote as it learned";
pub(crate) const NO_AGES: &str = "Nothing yet. The first text comes with the first snapshot.";
pub(crate) const BROKEN: &str = "the connection to the coordinator broke before the text was whole";
pub(crate) const SWITCH_OFF: &str = "Switch the playground off";
pub(crate) const SWITCH_ON: &str = "Switch the playground on";
pub(crate) const SWITCH_TITLE: &str = "Texts for visitors";

/// Who writes, beside the switch.
pub(crate) fn switch_note(place: Place) -> &'static str {
    match place {
        Place::Workers => {
            "The devices that hold the model continue texts for whoever asks. While they train, texts take a bounded share \
             of their time."
        }
        Place::Off | Place::Coordinator => {
            "The coordinator continues texts with the newest snapshot for whoever asks. The devices that train do not \
             notice."
        }
    }
}

/// What one is talking to.
pub(crate) fn about_model(model: &ModelView, place: Place) -> String {
    let trained = match model.step {
        0 => String::new(),
        step => format!(" after {} of training", plural(step, "step", "steps")),
    };
    let held = match place {
        Place::Workers => {
            " Each token passes through the devices that hold its layers, and your text with it."
        }
        Place::Off | Place::Coordinator => "",
    };
    format!(
        "This is a model of {} parameters{trained}, which reads {} tokens at a time. A model so small continues a text in \
         the manner of what it has read. It does not answer questions and knows no facts.{held}",
        rough(model.parameters),
        count(u64::from(model.positions)),
    )
}

/// Why nothing can be asked now; None where it can.
pub(crate) fn why_not(serving: &ServingView, is_organizer: bool) -> Option<String> {
    if let Some(why) = &serving.why {
        return Some(sentence(why));
    }
    (!serving.open && !is_organizer).then(|| "Only the organizer of this run may ask the model.".to_owned())
}

/// How far a text is; empty while there is none.
pub(crate) fn stage(stage: &Stage) -> String {
    match stage {
        Stage::Idle => String::new(),
        Stage::Asked => "Asking the coordinator…".to_owned(),
        Stage::Waiting(before) => {
            format!("Waiting: {} before yours.", plural(u64::from(*before), "text is", "texts are"))
        }
        Stage::Writing => "Writing…".to_owned(),
        Stage::Done => "Done.".to_owned(),
        Stage::Stopped => "Stopped.".to_owned(),
        Stage::Failed(words) => sentence(words),
    }
}

/// A refusal in the coordinator's words, with the time after which to ask again.
pub(crate) fn refused(words: &str, retry_after: Option<f64>) -> String {
    match retry_after {
        Some(seconds) => format!("{} Try again in {}.", sentence(words), about(seconds)),
        None => sentence(words),
    }
}

/// At which age.
pub(crate) fn age(step: u64) -> String {
    format!("After {}", plural(step, "step", "steps"))
}

/// After which words the texts of all ages begin.
pub(crate) fn ages_note(prompt: &str) -> String {
    match prompt.trim() {
        "" => "Always after an empty line, with the same draws.".to_owned(),
        prompt => format!("Always after the words “{prompt}”, with the same draws."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_what_one_talks_to_and_for_waiting() {
        let model =
            ModelView { name: "tiny".into(), parameters: 812_000, positions: 128, step: 2000, sweep: None };
        let words = about_model(&model, Place::Coordinator);
        assert!(words.contains("2,000 steps") && words.contains("128 tokens"), "{words}");
        assert_eq!(stage(&Stage::Waiting(1)), "Waiting: 1 text is before yours.");
        assert_eq!(stage(&Stage::Waiting(3)), "Waiting: 3 texts are before yours.");
        assert_eq!(refused("too many", Some(12.0)), "Too many. Try again in 12 s.");
    }

    #[test]
    fn whoever_may_not_ask_hears_why() {
        let open = ServingView {
            place: Place::Coordinator,
            open: true,
            on: true,
            model: None,
            why: None,
            most_tokens: 256,
            waiting: 0,
        };
        assert_eq!(why_not(&open, false), None);
        let closed = ServingView { open: false, ..open.clone() };
        assert!(why_not(&closed, false).is_some() && why_not(&closed, true).is_none());
        let silent = ServingView { why: Some("the model has no snapshot yet".into()), ..open };
        assert_eq!(why_not(&silent, true).as_deref(), Some("The model has no snapshot yet."));
    }
}
