//! Rules that each mode asks for with fields of its own.

use protocol::tensor::{Encoding, TensorMeta};

use super::{choices::ModeName, read::Reading, run_config::RunConfig};

/// `start_with` is the field of the mode, and `source` the one that its default is taken from.
pub(super) fn workers_are_let_in(
    reading: &mut Reading<'_>,
    start_with: &str,
    source: &str,
    config: &RunConfig,
) {
    let most = config.session.max_workers;
    let workers = match config.mode {
        ModeName::Pipeline | ModeName::Serve => config.pipeline.start_with,
        ModeName::Block => config.rounds.start_with,
    };
    reading.rule(&[start_with, source, "session.max_workers"], || {
        (workers > most).then(|| {
            format!(
                "the run waits for {workers} workers but lets in {most}; raise session.max_workers, or wait for fewer"
            )
        })
    });
}

/// A tensor that no frame takes.
pub(super) struct TooLarge {
    /// Values in it.
    pub values: u64,
    /// Values that a frame takes.
    pub limit: u64,
}

/// Asks the wire itself whether a frame takes a tensor of this shape; None: it does.
pub(super) fn beyond_frame(shape: &[u32], encoding: Encoding) -> Option<TooLarge> {
    let values = TensorMeta::elements(shape).unwrap_or(u64::MAX);
    let bytes = TensorMeta::expected_bytes(encoding, shape).unwrap_or(u64::MAX);
    let meta = TensorMeta { encoding, shape: shape.to_vec(), bytes, checksum: 0 };
    let fits = meta.check().is_ok() && bytes <= protocol::frame::MAX_PAYLOAD as u64;
    (!fits).then_some(TooLarge { values, limit: protocol::tensor::MAX_ELEMENTS })
}
