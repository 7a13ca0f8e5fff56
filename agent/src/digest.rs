//! A content digest as containerd writes it: `sha256:<64 hex>`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The SHA-256 of a blob, an image config or a chain of layers. Other algorithms are refused: no image of the
/// supported containerds uses one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

/// Why a text is no digest. The text is cut to 80 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("{0:?} is no digest: sha256:<64 lower-case hex digits> is expected")]
    Form(String),
}

impl Digest {
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// From 64 lower-case hex digits: the file name of a blob.
    pub fn from_hex(text: &str) -> Result<Self, DigestError> {
        let form = || DigestError::Form(text.chars().take(80).collect());
        if text.len() != 64 || text.bytes().any(|b| !matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(form());
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| form())?;
        Ok(Self(bytes))
    }

    /// The 64 hex digits: the file name of the blob in `blobs/sha256`.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        match text.strip_prefix("sha256:") {
            Some(digits) => {
                Self::from_hex(digits).map_err(|_| DigestError::Form(text.chars().take(80).collect()))
            }
            None => Err(DigestError::Form(text.chars().take(80).collect())),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_and_bytes_round_trip(bytes in any::<[u8; 32]>()) {
            let digest = Digest::from_bytes(bytes);
            prop_assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
            prop_assert_eq!(Digest::from_hex(&digest.to_hex()), Ok(digest));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,100}") {
            let _ = text.parse::<Digest>();
        }
    }

    #[test]
    fn only_lower_case_sha256_is_a_digest() {
        let good = format!("sha256:{}", "0a".repeat(32));
        assert!(good.parse::<Digest>().is_ok());
        for bad in [
            good.to_uppercase(),
            good.replace("0a", "0A"),
            "0a".repeat(32),
            format!("{good}0"),
            "sha512:00".into(),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
