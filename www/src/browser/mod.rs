//! What the page asks of the browser.

pub mod address;
pub mod clipboard;
pub mod device;
pub mod js;
pub mod name;
pub mod title;
pub mod token;
pub mod wake_lock;
pub mod webgpu;
