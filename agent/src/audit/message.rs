//! An event as one sentence for a person.
use super::Body;

impl Body {
    /// The event as one sentence for a person.
    pub fn message(&self) -> String {
        self.kind().to_owned()
    }
}
