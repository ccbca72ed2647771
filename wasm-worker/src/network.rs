//! The browser's WebSocket as the session's transport.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use js_sys::{ArrayBuffer, Uint8Array};
use protocol::SUBPROTOCOL;
use wasm_bindgen::{JsCast, prelude::Closure};
use web_sys::{BinaryType, CloseEvent, Event, MessageEvent, WebSocket};
use worker::platform::{self, Clock as _, PlatformError};

use crate::{clock::Clock, js};

/// Unsent bytes at which sending waits.
const FULL: u32 = 8 << 20;

/// Connects to one coordinator.
pub(crate) struct Network {
    url: String,
}

impl Network {
    pub(crate) fn new(url: String) -> Self {
        Self { url }
    }
}

/// What the socket's events tell.
#[derive(Default)]
struct State {
    open: Cell<bool>,
    closed: RefCell<Option<String>>,
    inbox: RefCell<VecDeque<Vec<u8>>>,
    waker: RefCell<Option<Waker>>,
}

impl State {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn close(&self, why: String) {
        self.closed.borrow_mut().get_or_insert(why);
        self.wake();
    }

    /// Wait until `ready` gives something.
    async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        poll_fn(|context| match ready() {
            Some(value) => Poll::Ready(value),
            None => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn lost(&self) -> Option<PlatformError> {
        self.closed.borrow().as_ref().map(|why| PlatformError(why.clone()))
    }
}

/// One WebSocket, with what listens to it.
pub(crate) struct Transport {
    socket: WebSocket,
    state: Rc<State>,
    clock: Clock,
    _on_open: Closure<dyn FnMut(Event)>,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_close: Closure<dyn FnMut(CloseEvent)>,
}

impl platform::Network for Network {
    type Transport = Transport;

    async fn connect(&self) -> Result<Transport, PlatformError> {
        let socket =
            WebSocket::new_with_str(&self.url, SUBPROTOCOL).map_err(|e| PlatformError(js::words(&e)))?;
        socket.set_binary_type(BinaryType::Arraybuffer);
        let state = Rc::new(State::default());
        let on_open = Closure::new({
            let state = state.clone();
            move |_: Event| {
                state.open.set(true);
                state.wake();
            }
        });
        let on_message = Closure::new({
            let state = state.clone();
            move |event: MessageEvent| {
                if let Ok(buffer) = event.data().dyn_into::<ArrayBuffer>() {
                    state.inbox.borrow_mut().push_back(Uint8Array::new(&buffer).to_vec());
                    state.wake();
                }
            }
        });
        // A socket that fails says "error" without words and then "close": the latter is enough.
        let on_close = Closure::new({
            let state = state.clone();
            move |_: CloseEvent| {
                let why = match state.open.get() {
                    true => "the connection to the coordinator was lost",
                    false => "the coordinator cannot be reached",
                };
                state.close(why.into());
            }
        });
        socket.set_onopen(Some(on_open.as_ref().unchecked_ref()));
        socket.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        socket.set_onclose(Some(on_close.as_ref().unchecked_ref()));
        let transport = Transport {
            socket,
            state,
            clock: Clock::new(),
            _on_open: on_open,
            _on_message: on_message,
            _on_close: on_close,
        };
        let state = &transport.state;
        state
            .until(|| match state.lost() {
                Some(lost) => Some(Err(lost)),
                None => state.open.get().then_some(Ok(())),
            })
            .await?;
        Ok(transport)
    }
}

impl platform::Transport for Transport {
    async fn send(&self, frame: Vec<u8>) -> Result<(), PlatformError> {
        // There is no event for "sent"; looking again after a while is what the browser leaves.
        while self.socket.buffered_amount() > FULL {
            if let Some(lost) = self.state.lost() {
                return Err(lost);
            }
            self.clock.sleep(0.005).await;
        }
        if let Some(lost) = self.state.lost() {
            return Err(lost);
        }
        self.socket.send_with_u8_array(&frame).map_err(|e| PlatformError(js::words(&e)))
    }

    async fn receive(&self) -> Result<Vec<u8>, PlatformError> {
        let state = &self.state;
        state
            .until(|| match state.inbox.borrow_mut().pop_front() {
                Some(frame) => Some(Ok(frame)),
                None => state.lost().map(Err),
            })
            .await
    }

    async fn finish(&self) {
        // The browser sends what is buffered before it closes.
        let _ = self.socket.close();
        let state = &self.state;
        state.until(|| state.lost().map(|_| ())).await;
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.socket.set_onopen(None);
        self.socket.set_onmessage(None);
        self.socket.set_onclose(None);
        let _ = self.socket.close();
    }
}
