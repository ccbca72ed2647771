//! What a device cannot be: bounds from physics on what workers claim of themselves.

use protocol::{message::Profile, refusal::Refusal, spec::RunSpec};

/// Floating-point operations a second that no device of one volunteer does: a hundred times a data-centre GPU.
const FASTEST: f64 = 1e17;
/// Seconds of one layer on one micro-batch beyond which a device is of no use to anybody.
const SLOWEST: f64 = 3600.0;

/// Holds a profile against what is physically possible at the run's shapes.
///
/// # Errors
/// [`Refusal::BadProfile`] naming the field.
pub(crate) fn profile(profile: &Profile, run: &RunSpec) -> Result<(), Refusal> {
    let [n, t, d] = [run.sequences, run.context, run.model.width].map(f64::from);
    // Products of one layer: 12 d^2 multiply-adds a token, and T d for scores and values each.
    let forward = 2.0 * n * t * (12.0 * d * d + 2.0 * t * d);
    for (name, seconds, operations) in [
        ("layer.forward", profile.layer.forward, forward),
        ("layer.backward", profile.layer.backward, 2.0 * forward),
    ] {
        if seconds > SLOWEST || operations / seconds > FASTEST {
            let detail = format!(
                "{name} is {seconds:e} s; a layer of this run takes a device between {:.1e} and {SLOWEST} s",
                operations / FASTEST
            );
            return Err(Refusal::BadProfile { detail });
        }
    }
    for (name, seconds) in [
        ("embedding.forward", profile.embedding.forward),
        ("embedding.backward", profile.embedding.backward),
        ("head_seconds", profile.head_seconds),
    ] {
        if seconds > SLOWEST {
            let detail = format!("{name} is {seconds:e} s, at most {SLOWEST} s are of use");
            return Err(Refusal::BadProfile { detail });
        }
    }
    Ok(())
}
