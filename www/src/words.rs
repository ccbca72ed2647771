//! What the pages say: sentences for every state, and the model in words. No browser in here.

use protocol::{
    message::{DrainReason, Pressure, WorkerKind},
    spec::{Backend, Hop, ModelSpec, RunSpec},
    view::{Phase, RunView, WorkerState, WorkerView},
};

use crate::{
    block_words,
    format::{about, bytes, count, plural, rough},
    session::Stage,
};

/// How a state feels; the style sheet has a colour for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Calm,
    Busy,
    Good,
    Warn,
    Bad,
}

impl Tone {
    pub fn name(self) -> &'static str {
        match self {
            Tone::Calm => "calm",
            Tone::Busy => "busy",
            Tone::Good => "good",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        }
    }
}

/// A state for a person: what is the case, and what that means for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Words {
    pub tone: Tone,
    pub title: String,
    pub detail: String,
}

fn say(tone: Tone, title: &str, detail: impl Into<String>) -> Words {
    Words { tone, title: title.to_owned(), detail: detail.into() }
}

/// What this device is doing.
pub fn stage(stage: &Stage) -> Words {
    use Tone::*;
    match stage {
        Stage::Idle => {
            say(Calm, "Not taking part", "Nothing runs on this device until you press the button.")
        }
        Stage::Starting => say(
            Busy,
            "Loading the training program",
            "A few megabytes, once. It runs inside this tab and nothing is installed.",
        ),
        Stage::Connecting => say(Busy, "Connecting", "Opening a connection to the coordinator."),
        Stage::Benchmarking => say(
            Busy,
            "Measuring this device",
            "A few seconds of trial work show how large a part of the model suits it.",
        ),
        Stage::Measured => {
            say(Busy, "Measured", "The coordinator is deciding which part of the model this device gets.")
        }
        Stage::Spare => say(
            Calm,
            "Standing by",
            "All parts of the model are taken for now. This device steps in when another one leaves or the \
             parts are dealt anew. You can leave it waiting.",
        ),
        Stage::Loading => say(Busy, "Loading your part", "Fetching or drawing the weights of your layers."),
        Stage::Training => say(Good, "Training", "This device is working on its part of the model."),
        Stage::Measuring => {
            say(Good, "Measuring the model", "This device tries the model on text held back.")
        }
        Stage::Reconnecting { in_seconds, reason } => say(
            Warn,
            "Connection lost, trying again",
            format!(
                "{} Next try in about {}. The run goes on with the other devices meanwhile.",
                sentence(reason),
                about(in_seconds.max(1.0))
            ),
        ),
        Stage::Stopping => say(Busy, "Stopping", "Telling the coordinator that this device leaves."),
        Stage::Left => say(
            Calm,
            "Stopped",
            "This device has left the run. What it did so far counts. You can join again.",
        ),
        Stage::Over(DrainReason::Finished) => say(
            Good,
            "The run is finished",
            "The last step is done. Thank you: part of this model is your work.",
        ),
        Stage::Over(DrainReason::Stopped) => {
            say(Calm, "The run was stopped", "The organizer ended it. Thank you for your part in it.")
        }
        Stage::Refused(words) => {
            say(Bad, "The coordinator turned this device away", format!("The reason: {}", sentence(words)))
        }
        Stage::Failed(words) => say(Bad, "This device cannot go on", sentence(words)),
        Stage::Crashed(_) => say(
            Bad,
            "The training program crashed",
            "Nothing of yours is lost and the run goes on. It starts again by itself in a moment; when it has crashed \
             three times it waits for the button.",
        ),
        Stage::Unloadable => say(
            Bad,
            "The training program could not be loaded",
            "Check the network and try again. Reload the page if that does not help: the coordinator may have \
             been updated.",
        ),
    }
}

pub fn phase(phase: Phase) -> (&'static str, Tone) {
    match phase {
        Phase::Waiting => ("Waiting to start", Tone::Calm),
        Phase::Loading => ("Getting ready", Tone::Busy),
        Phase::Training => ("Training", Tone::Good),
        Phase::Paused => ("Paused", Tone::Warn),
        Phase::Finished => ("Finished", Tone::Good),
        Phase::Stopped => ("Stopped", Tone::Calm),
    }
}

/// Whether nothing more will be trained.
pub fn is_over(phase: Phase) -> bool {
    matches!(phase, Phase::Finished | Phase::Stopped)
}

pub fn worker_state(state: WorkerState) -> (&'static str, Tone) {
    match state {
        WorkerState::Benchmarking => ("Measuring itself", Tone::Busy),
        WorkerState::Spare => ("Standing by", Tone::Calm),
        WorkerState::Loading => ("Loading its part", Tone::Busy),
        WorkerState::Training => ("Training", Tone::Good),
    }
}

pub fn backend(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu => "the processor",
        Backend::WebGpu => "the graphics chip (WebGPU)",
    }
}

/// "Browser, WebGPU".
pub fn kind(worker: &WorkerView) -> String {
    let program = match worker.kind {
        WorkerKind::Browser => "Browser",
        WorkerKind::Native => "Program",
    };
    match worker.backend {
        Some(Backend::Cpu) => format!("{program}, CPU"),
        Some(Backend::WebGpu) if worker.kind == WorkerKind::Browser => format!("{program}, WebGPU"),
        Some(Backend::WebGpu) => format!("{program}, GPU"),
        None => program.to_owned(),
    }
}

/// "212 MB of 2.15 GB": what the program holds, and what its part may take.
pub fn memory(worker: &WorkerView) -> String {
    match (worker.vitals.memory_bytes, worker.memory_bytes) {
        (0, 0) => "unknown".to_owned(),
        (0, limit) => format!("at most {}", bytes(limit)),
        (used, 0) => bytes(used),
        (used, limit) => format!("{} of {}", bytes(used), bytes(limit)),
    }
}

/// "12 Mbit/s up, 50 down".
pub fn link(worker: &WorkerView) -> String {
    let rate = |bytes_per_second: f64| match bytes_per_second * 8e-6 {
        mbit if mbit < 10.0 => format!("{mbit:.1}"),
        mbit => format!("{mbit:.0}"),
    };
    worker.link.map_or("not measured".to_owned(), |link| {
        format!("{} Mbit/s up, {} down", rate(link.up), rate(link.down))
    })
}

/// How hard the device says it is at work.
pub fn pressure(worker: &WorkerView) -> Option<&'static str> {
    Some(match worker.vitals.pressure? {
        Pressure::Nominal => "light",
        Pressure::Fair => "fair",
        Pressure::Serious => "high",
        Pressure::Critical => "very high, it may slow down",
    })
}

/// Worth a word when steps take much longer than the device had promised.
pub fn pace(worker: &WorkerView) -> Option<String> {
    (worker.pace > 1.5).then(|| format!("Takes {:.1} times as long as it measured on joining.", worker.pace))
}

/// What the run is, for someone who has never seen it.
pub fn run(view: &RunView) -> String {
    if block_words::is_block_mode(view) {
        return block_words::run(view);
    }
    format!(
        "A language model of {} and {} parameters is learning from {}. No single device holds it: each trains a \
         slice.",
        plural(view.run.model.layers.into(), "layer", "layers"),
        rough(view.parameters),
        view.corpus,
    )
}

/// What the numbers of the curve mean, and how much text there is.
pub fn task(view: &RunView) -> String {
    if block_words::is_block_mode(view) {
        return block_words::task(view);
    }
    format!(
        "The model guesses the next token of a text. The loss says how much the right answer surprises it, so the \
         line should fall. There are {} tokens to learn from, {}.",
        rough(view.train_tokens),
        tokenizer(&view.tokenizer),
    )
}

pub fn tokenizer(name: &str) -> String {
    match name {
        "bytes" => "one per byte".to_owned(),
        "characters" | "chars" => "one per character".to_owned(),
        other => format!("cut by {other}"),
    }
}

/// "the embedding and layers 1 to 4 of 12".
pub fn part(hops: &[Hop], model: &ModelSpec) -> String {
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

/// Parameters in these parts of the model.
pub fn part_parameters(hops: &[Hop], model: &ModelSpec) -> u64 {
    let (v, p, d) = (u64::from(model.vocabulary), u64::from(model.positions), u64::from(model.width));
    // Two layer norms, attention (3 d and d), MLP (4 d and back), with biases.
    let layer = 12 * d * d + 13 * d;
    let of = |hop: &Hop| {
        let embedding = if hop.part.embedding { v * d + p * d } else { 0 };
        let head = if hop.part.head { 2 * d + if model.tie_embeddings { 0 } else { v * d } } else { 0 };
        embedding + u64::from(hop.part.end_layer.saturating_sub(hop.part.first_layer)) * layer + head
    };
    hops.iter().map(of).sum()
}

/// What a device with these parts sends to others.
pub fn leaves(hops: &[Hop]) -> &'static str {
    let first = hops.iter().any(|hop| hop.part.embedding);
    let last = hops.iter().any(|hop| hop.part.head);
    match (first, last) {
        (true, true) => "Your device holds both ends of the model. It gets the text from the coordinator.",
        (true, false) => {
            "Your device holds the first part: the coordinator sends it the text to learn from, and it sends \
             activations (tables of numbers) on to the next device."
        }
        (false, true) => {
            "Your device holds the last part: it compares the model's guesses with the text, which the \
             coordinator sends it, and sends gradients (tables of numbers) back."
        }
        (false, false) => {
            "Your device holds a middle part: it never sees the text, only tables of numbers, which it changes \
             and passes on."
        }
    }
}

/// Seconds until the last step at the present pace.
pub fn seconds_left(view: &RunView) -> Option<f64> {
    if block_words::is_block_mode(view) {
        return block_words::seconds_left(view);
    }
    let run: &RunSpec = &view.run;
    let tokens = u64::from(run.sequences) * u64::from(run.context) * u64::from(run.micro_batches);
    let left = view.steps.saturating_sub(view.step) * tokens;
    (view.phase == Phase::Training && view.tokens_per_second > 0.0 && left > 0)
        .then(|| left as f64 / view.tokens_per_second)
}

/// Who is here, where the run's own reason does not tell already.
pub fn crowd_at_work(view: &RunView) -> Option<String> {
    matches!(view.phase, Phase::Loading | Phase::Training).then(|| crowd(view))
}

/// "3 devices take part, 1 stands by."
pub fn crowd(view: &RunView) -> String {
    if block_words::is_block_mode(view) {
        return block_words::crowd(view);
    }
    let spare = view.workers.iter().filter(|worker| worker.hops.is_empty()).count() as u64;
    crowd_of(view.workers.len() as u64 - spare, spare)
}

pub fn crowd_of(busy: u64, spare: u64) -> String {
    match (busy, spare) {
        (0, 0) => "No device is here yet.".to_owned(),
        (0, _) => format!("{} here.", plural(spare, "device is", "devices are")),
        (_, 0) => format!("{} part.", plural(busy, "device takes", "devices take")),
        _ => format!("{} part, {} by.", plural(busy, "device takes", "devices take"), stand(spare)),
    }
}

fn stand(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "stands" } else { "stand" })
}

/// "and 1 spare", "no spares".
pub fn spares(n: u64) -> String {
    if n == 0 { "no spares".to_owned() } else { format!("and {}", plural(n, "spare", "spares")) }
}

/// With a capital at the start and a full stop at the end; other programs' words often lack them.
pub fn sentence(words: &str) -> String {
    let words = words.trim();
    let end = if words.is_empty() || words.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{end}", capital(words))
}

/// With a capital at the start.
pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use protocol::spec::Part;

    use super::*;

    fn hop(index: u32, embedding: bool, first_layer: u32, end_layer: u32, head: bool) -> Hop {
        Hop { index, part: Part { embedding, first_layer, end_layer, head } }
    }

    fn model(tie_embeddings: bool) -> ModelSpec {
        ModelSpec { vocabulary: 50257, positions: 1024, width: 768, heads: 12, layers: 12, tie_embeddings }
    }

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
    fn parameters_add_up_to_gpt2() {
        assert_eq!(part_parameters(&[hop(0, true, 0, 12, true)], &model(true)), 124_439_808);
        let halves = [hop(0, true, 0, 5, false), hop(1, false, 5, 12, true)];
        assert_eq!(part_parameters(&halves, &model(false)), 124_439_808 + 50257 * 768);
    }

    #[test]
    fn other_programs_words_become_sentences() {
        assert_eq!(sentence("the run is over"), "The run is over.");
        assert_eq!(sentence(" Wait! "), "Wait!");
        assert_eq!(sentence(""), "");
    }
}
