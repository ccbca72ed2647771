//! `run.toml`.

use coordinator::config::RunConfig;
use protocol::{
    checked::Checked,
    frame,
    message::{ToWorker, Welcome},
};

use crate::{finite::assert_finite, memory};

/// Name of the file in the faults.
const FILE: &str = "a/run.toml";
/// Rows of the largest vocabulary there is: GPT-2's.
const VOCABULARY: u32 = 50_257;

/// Reads `bytes` as a `run.toml`.
///
/// # Panics
/// When something is not as it must be.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // A key of two characters becomes an entry with its place in the text, and a fault that lists the names there are.
    let limit = (1 << 20) + 4096 * text.len() as u64;
    match memory::within(limit, || RunConfig::parse(text, FILE)) {
        Ok(config) => {
            sound(&config);
            true
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "what is refused has a fault");
            let lines = 1 + text.matches('\n').count();
            let mut before = 1;
            for fault in faults {
                assert!(!fault.message.is_empty() && fault.to_string().starts_with(FILE), "{fault:?}");
                let line = fault.line.unwrap_or(usize::MAX);
                assert!(before <= line && (line <= lines || fault.line.is_none()), "line of {fault}");
                before = line;
            }
            false
        }
    }
}

fn sound(config: &RunConfig) {
    assert_finite(config);
    let text = config.to_toml().expect("every path came from text");
    match RunConfig::parse(&text, "again") {
        Ok(again) => assert_eq!(again, *config),
        Err(faults) => panic!("{faults:?} in\n{text}"),
    }
    // What the organizer may ask for can be said to a worker.
    let run = config.run_spec(VOCABULARY);
    if let Err(error) = run.check() {
        panic!("the run is accepted, but workers would refuse it: {error}");
    }
    let millis = |duration: std::time::Duration| u32::try_from(duration.as_millis());
    let session = &config.session;
    let (Ok(heartbeat_ms), Ok(lease_ms)) = (millis(session.heartbeat()), millis(session.lease())) else {
        panic!("{session:?} is too long")
    };
    let welcome = Welcome { worker: 1, token: String::new(), run, heartbeat_ms, lease_ms };
    let message = ToWorker::Down(welcome.into());
    let bytes = frame::encode(&message, &[]).expect("a welcome keeps the protocol's rules");
    assert_eq!(frame::decode::<ToWorker>(&bytes).map(|frame| frame.message), Ok(message));
    assert_finite(&config.rounds.rules(config.training.learning_rate));
    assert_finite(&(config.rounds.deadline_policy(), config.session.step_deadline()));
}
