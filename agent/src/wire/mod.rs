//! Requests, rebuilt from the bytes that clients sent to containerd's socket.
pub mod request;
