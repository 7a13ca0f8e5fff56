//! How a person and a cluster ask the running agent.
//!
//! `answer` is what can be asked and what is answered; the agent implements [`Answers`]. `control` serves it as HTTP
//! with JSON on a unix socket, `client` asks it there; `http` tells a cluster health and numbers on TCP. Nothing here decides or changes anything.

mod answer;
mod client;
mod control;
pub mod http;

pub use answer::{
    Answers, ArchiveStatus, ContainerdStatus, Counts, HoldState, HoldStatus, HookStatus, ImageStatus,
    JournalStatus, Plan, PlanAction, PlannedImage, ProbeStatus, Progress, Refusal, Restore, RestoreLine,
    RestoreRefused, Restored, Status,
};
pub use client::{Client, ClientError};
pub use control::{Control, ControlError};
pub use http::{Http, HttpError};

#[cfg(test)]
mod tests;
