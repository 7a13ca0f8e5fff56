//! The audit trail: what happened on the node, told so that it can be trusted.
//!
//! Takes [`Draft`]s, emits [`Event`]s: one JSON object a line in the journal, and from there in every sink. The
//! contract of the fields is [`event`] and [`body`], from which docs/events.md and docs/event.schema.json are made.

pub mod actor;
pub mod agent;
pub mod body;
pub mod cause;
pub mod cgroup;
pub mod chain;
pub mod clock;
pub mod event;
mod fit;
pub mod image;
pub mod journal;
pub mod message;
pub mod reader;
pub mod redact;
pub mod repair;
mod segment;
pub mod sink;
pub mod stream;
pub mod teller;
pub mod text;
pub mod users;

pub use actor::Actor;
pub use body::Body;
pub use cause::{Cause, Confidence, Kind};
pub use clock::Clock;
pub use event::{Draft, Event, Severity};
pub use image::{Image, Lost, Orphaned, Request};
pub use journal::Journal;
pub use teller::{Teller, Voice};
