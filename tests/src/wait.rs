//! Waiting for a condition, with a deadline.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// How long anything may take before a test gives up: generous, as a deadline is no measurement.
pub const LIMIT: Duration = Duration::from_mins(10);

const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Looks until there is an answer.
///
/// # Errors
/// What `look` fails with, or after `limit` an error that says what was waited for.
pub async fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("waited {} s in vain for {what}", limit.as_secs());
        }
        sleep(BETWEEN_LOOKS).await;
    }
}
