//! Which of an index's manifests a node runs.

use super::document;

/// The platform whose manifest is taken. The default is this node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    /// Go's word: `linux`.
    pub os: &'static str,
    /// Go's word: `amd64`, `arm64`.
    pub architecture: &'static str,
}

impl Default for Platform {
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux", architecture }
    }
}

impl Platform {
    /// How well `other` fits: 0 not at all, higher is better. A variant that every node of the architecture has
    /// (amd64 v1, arm64 v8) is as good as none; amd64 v2 and later need a newer CPU, so they come last.
    pub(super) fn fit(&self, other: &document::Platform) -> u8 {
        if other.os != self.os || other.architecture != self.architecture {
            return 0;
        }
        match (self.architecture, other.variant.as_deref().unwrap_or_default()) {
            (_, "") | ("amd64", "v1") | ("arm64", "v8") => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_variant_wins() {
        let of = |os: &str, architecture: &str, variant: Option<&str>| document::Platform {
            os: os.into(),
            architecture: architecture.into(),
            variant: variant.map(Into::into),
        };
        let arm = Platform { os: "linux", architecture: "arm64" };
        assert_eq!(arm.fit(&of("linux", "arm64", Some("v8"))), 2);
        assert_eq!(arm.fit(&of("linux", "arm64", None)), 2);
        assert_eq!(arm.fit(&of("linux", "arm64", Some("v9"))), 1);
        assert_eq!(arm.fit(&of("linux", "arm", Some("v8"))), 0);
        assert_eq!(arm.fit(&of("unknown", "unknown", None)), 0);
        assert_eq!(arm.fit(&of("windows", "arm64", None)), 0);
        let amd = Platform { os: "linux", architecture: "amd64" };
        assert!(amd.fit(&of("linux", "amd64", Some("v3"))) < amd.fit(&of("linux", "amd64", None)));
    }
}
