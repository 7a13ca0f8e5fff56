//! What the end-to-end tests and the demo share.
