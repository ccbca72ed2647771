//! `/v1/completions` and `/v1/models` in OpenAI's shape, and what the pages need beside them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::stream;
use serde_json::{Value, json};

use super::{Shared, answers::bearer, api::if_organizer, guard::asker, limits::Used, receive, token};
use crate::{
    address::Address,
    serving::{self, Answer, Asked, Fault, Refused, Told},
};

/// Bytes that the body of a request may have.
const BODY: u64 = 1 << 20;
/// How often a stream says that it is there while a text waits or a long prompt is read.
const ALIVE: Duration = Duration::from_secs(15);

/// The routes of a run that serves.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/completions", post(completions))
        .route("/v1/serving", get(view))
        .route("/v1/samples", get(samples))
        .route("/v1/serving/on", post(|shared, headers| switch(shared, headers, true)))
        .route("/v1/serving/off", post(|shared, headers| switch(shared, headers, false)))
}

async fn view(State(shared): State<Arc<Shared>>) -> Response {
    fresh(Json(shared.serving.view()))
}

async fn samples(State(shared): State<Arc<Shared>>) -> Response {
    fresh(Json(shared.serving.samples()))
}

fn fresh(body: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], body).into_response()
}

async fn switch(State(shared): State<Arc<Shared>>, headers: HeaderMap, on: bool) -> Response {
    if let Err(refused) = if_organizer(&shared, &headers) {
        return *refused;
    }
    shared.serving.desk.switch(on);
    StatusCode::NO_CONTENT.into_response()
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Err(refused) = may_ask(&shared, &headers) {
        return *refused;
    }
    let model = json!({
        "id": shared.serving.name,
        "object": "model",
        "created": started(),
        "owned_by": "cohort",
    });
    fresh(Json(json!({ "object": "list", "data": [model] })))
}

async fn completions(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match ask(&shared, request).await {
        Ok(response) => response,
        Err(refused) => *refused,
    }
}

/// # Errors
/// The answer to a request that is refused.
async fn ask(shared: &Arc<Shared>, request: Request) -> Result<Response, Box<Response>> {
    may_ask(shared, request.headers())?;
    let address = asker(&request);
    let length = receive::length(request.body()).unwrap_or(BODY);
    if length > BODY {
        let words = format!("the body has {length} bytes; up to {BODY} are let in");
        return Err(Box::new(error(StatusCode::PAYLOAD_TOO_LARGE, &words, None, Some("too_large"))));
    }
    let body = receive::whole(request.into_body(), length).await?;
    let serving = &shared.serving;
    let asked =
        serving::Request::read(&body, serving.bounds()).map_err(|fault| Box::new(of_fault(&fault)))?;
    let texts = (asked.prompts.len() * asked.n) as f64;
    let most = serving.settings.texts_per_minute;
    if texts > f64::from(most) && address != Address::Local {
        let words =
            format!("{texts} texts are more than the {most} that one address may ask for in a minute");
        return Err(Box::new(error(StatusCode::BAD_REQUEST, &words, Some("n"), Some("invalid_value"))));
    }
    shared.limits.try_use(address, Used::Texts, texts).map_err(|refused| {
        let (status, after) = (StatusCode::TOO_MANY_REQUESTS, refused.after);
        Box::new(later(error(status, &refused.words, None, Some("rate_limit_exceeded")), after))
    })?;
    let step = serving.desk.state().step.unwrap_or_default();
    let id = format!("cmpl-{:016x}", rand::random::<u64>());
    let answer = Answer::new(&id, started(), &serving.name, step, asked);
    let wanted = answer.wanted(rand::random());
    let wanted = wanted.into_iter().map(|(request, chunk)| {
        let bytes = serving.cache_bytes(request.prompt.len() + request.count);
        Asked { request, chunk, bytes }
    });
    let texts = serving.desk.ask(address, wanted.collect()).map_err(|refused| {
        Box::new(match refused {
            Refused::Full(after) => {
                let words = "too many texts are waiting already; ask again later";
                later(error(StatusCode::TOO_MANY_REQUESTS, words, None, Some("rate_limit_exceeded")), after)
            }
            Refused::Closed(words) => {
                later(error(StatusCode::SERVICE_UNAVAILABLE, &words, None, Some("not_serving")), ALIVE)
            }
        })
    })?;
    let writing = Writing { shared: shared.clone(), answer, texts };
    if writing.answer.is_stream() { Ok(writing.stream()) } else { writing.whole().await }
}

/// A request whose texts are being written. Whoever drops it, such as the connection of a client that went away, gives
/// them up.
struct Writing {
    shared: Arc<Shared>,
    answer: Answer,
    texts: serving::Texts,
}

/// What is to be told next.
enum News {
    Piece(Value),
    Place(usize),
    /// A sign of life.
    Nothing,
}

impl Writing {
    /// The next that can be told; None at the end.
    ///
    /// # Errors
    /// The words of a failure.
    async fn next(&mut self) -> Result<Option<News>, String> {
        while !self.answer.is_finished() {
            let told = match tokio::time::timeout(ALIVE, self.texts.told.recv()).await {
                Ok(Some(told)) => told,
                Ok(None) => return Err("the coordinator is going down".into()),
                Err(_) => return Ok(Some(News::Nothing)),
            };
            let (index, told) = told;
            if let Told::Place(place) = told {
                return Ok(Some(News::Place(place)));
            }
            let piece = self.answer.take(index, told, &self.shared.serving.tokenizer)?;
            if self.answer.has_stopped(index) {
                self.texts.leave(index);
            }
            if let Some(piece) = piece {
                return Ok(Some(News::Piece(piece)));
            }
        }
        Ok(None)
    }

    async fn whole(mut self) -> Result<Response, Box<Response>> {
        let mut pieces = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(News::Piece(piece))) => pieces.push(piece),
                Ok(Some(News::Place(_) | News::Nothing)) => {}
                Ok(None) => return Ok(fresh(Json(self.answer.whole(&pieces)))),
                Err(words) => {
                    return Err(Box::new(error(
                        StatusCode::SERVICE_UNAVAILABLE,
                        &words,
                        None,
                        Some("not_serving"),
                    )));
                }
            }
        }
    }

    /// Server-sent events. The place in the queue is told in comments, which other programs pass over.
    fn stream(self) -> Response {
        let events = stream::unfold(Some(self), |writing| async move {
            let mut writing = writing?;
            let (event, rest) = match writing.next().await {
                Ok(Some(News::Piece(piece))) => (format!("data: {piece}\n\n"), Some(writing)),
                Ok(Some(News::Place(place))) => (format!(": place {place}\n\n"), Some(writing)),
                Ok(Some(News::Nothing)) => (":\n\n".to_owned(), Some(writing)),
                Ok(None) => {
                    let usage = writing.answer.usage_piece().map(|usage| format!("data: {usage}\n\n"));
                    (format!("{}data: [DONE]\n\n", usage.unwrap_or_default()), None)
                }
                Err(words) => {
                    let fault = fault_json(&words, "server_error", None, Some("not_serving"));
                    (format!("data: {fault}\n\n"), None)
                }
            };
            Some((Ok::<_, Infallible>(Bytes::from(event)), rest))
        });
        let mut response = fresh(Body::from_stream(events));
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        // nginx holds answers back otherwise.
        response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}

/// # Errors
/// The answer to whoever may not ask.
fn may_ask(shared: &Shared, headers: &HeaderMap) -> Result<(), Box<Response>> {
    if shared.serving.settings.open || token::equal(bearer(headers).unwrap_or_default(), &shared.organizer) {
        return Ok(());
    }
    let words = "texts of this run are for the organizer only: send the token of the organizer link as a bearer token";
    Err(Box::new(error(StatusCode::UNAUTHORIZED, words, None, Some("invalid_api_key"))))
}

fn of_fault(fault: &Fault) -> Response {
    let status = match fault.code {
        "model_not_found" => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_REQUEST,
    };
    error(status, &fault.words, fault.param, Some(fault.code))
}

fn error(status: StatusCode, words: &str, param: Option<&str>, code: Option<&str>) -> Response {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    (status, Json(fault_json(words, kind, param, code))).into_response()
}

fn fault_json(words: &str, kind: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({ "error": { "message": words, "type": kind, "param": param, "code": code } })
}

fn later(mut response: Response, after: Duration) -> Response {
    let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Seconds since 1970 at which this process began to be asked.
fn started() -> u64 {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match STARTED.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => now,
        Err(started) => started,
    }
}
