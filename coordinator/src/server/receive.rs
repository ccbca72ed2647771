//! The body of a request: read within the time that its length takes, and not kept where nobody wants it.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, HttpBody},
    http::StatusCode,
    response::Response,
};
use futures::StreamExt;
use tokio::time::timeout;

use super::answers::problem;

/// Time for any body ...
const BODY: Duration = Duration::from_secs(30);
/// ... and a second more for so many bytes: after so long a worker gives the request up too.
const BYTES_PER_SECOND: u64 = 32 << 10;
/// Bytes of a body that nobody wants, which are read and dropped so that its sender hears the answer: most senders listen
/// only when they have sent everything.
const UNWANTED: usize = 4 << 20;
/// Time for them.
const DROP: Duration = Duration::from_secs(10);

/// The length that the head announces; None without one.
pub(super) fn length(body: &Body) -> Option<u64> {
    body.size_hint().exact()
}

/// A whole body of so many bytes, as announced.
///
/// # Errors
/// The answer to a body that does not come, or not in time.
pub(super) async fn whole(body: Body, bytes: u64) -> Result<Bytes, Box<Response>> {
    let time = BODY + Duration::from_secs(bytes / BYTES_PER_SECOND);
    match timeout(time, axum::body::to_bytes(body, bytes as usize)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let words = format!("the body of the request did not arrive: {error}");
            Err(Box::new(problem(StatusCode::BAD_REQUEST, &words)))
        }
        Err(_) => {
            let words = format!("the body of the request did not arrive within {} s", time.as_secs());
            Err(Box::new(problem(StatusCode::REQUEST_TIMEOUT, &words)))
        }
    }
}

/// Reads a body and drops it: a bounded part of it, for a bounded time.
pub(super) async fn unwanted(body: Body) {
    let mut left = UNWANTED;
    let mut pieces = body.into_data_stream();
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await {
            match left.checked_sub(piece.len()) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = timeout(DROP, reading).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;

    use super::*;

    fn trickle() -> Body {
        // A byte every ten seconds, for ever.
        Body::from_stream(stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), ()))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_or_never_comes_ends() {
        let status = |result: Result<Bytes, Box<Response>>| result.unwrap_err().status();
        assert_eq!(status(whole(trickle(), 1 << 20).await), StatusCode::REQUEST_TIMEOUT);
        let never = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        assert_eq!(status(whole(never, 10).await), StatusCode::REQUEST_TIMEOUT);
        unwanted(trickle()).await;
        assert_eq!(whole(Body::from("body"), 4).await.unwrap(), "body");
        assert_eq!(status(whole(Body::from("too long"), 4).await), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn a_length_is_known_before_the_body_is_read() {
        assert_eq!(length(&Body::from("body")), Some(4));
        assert_eq!(length(&Body::from_stream(stream::empty::<Result<Bytes, Infallible>>())), None);
    }
}
