//! What the page asks of the browser, and of the coordinator through it.

pub(crate) mod address;
pub(crate) mod api;
pub(crate) mod clipboard;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod device;
pub(crate) mod focus;
pub(crate) mod js;
pub(crate) mod live;
pub(crate) mod name;
pub(crate) mod participation;
pub(crate) mod served;
pub(crate) mod stream;
pub(crate) mod tab;
pub(crate) mod title;
pub(crate) mod token;
pub(crate) mod visibility;
pub(crate) mod wake_lock;
pub(crate) mod webgpu;
