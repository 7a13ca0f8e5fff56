//! The methods that are decoded or that must be told apart from those: their paths, and sets of them.

use std::fmt;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $path:literal),* $(,)?) => {
        /// A method of containerd's socket that the agent knows by path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Known { $($(#[$doc])* $name),* }

        impl Known {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// `/package.Service/Method`.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path),* }
            }
        }
    };
}

methods! {
    RemoveImage = "/runtime.v1.ImageService/RemoveImage",
    RemoveImageAlpha = "/runtime.v1alpha2.ImageService/RemoveImage",
    PullImage = "/runtime.v1.ImageService/PullImage",
    PullImageAlpha = "/runtime.v1alpha2.ImageService/PullImage",
    ImagesCreate = "/containerd.services.images.v1.Images/Create",
    ImagesUpdate = "/containerd.services.images.v1.Images/Update",
    ImagesDelete = "/containerd.services.images.v1.Images/Delete",
    ContentDelete = "/containerd.services.content.v1.Content/Delete",
    ContentUpdate = "/containerd.services.content.v1.Content/Update",
    SnapshotsRemove = "/containerd.services.snapshots.v1.Snapshots/Remove",
    SnapshotsCleanup = "/containerd.services.snapshots.v1.Snapshots/Cleanup",
    LeasesDelete = "/containerd.services.leases.v1.Leases/Delete",
    LeasesDeleteResource = "/containerd.services.leases.v1.Leases/DeleteResource",
    Transfer = "/containerd.services.transfer.v1.Transfer/Transfer",
    NamespacesDelete = "/containerd.services.namespaces.v1.Namespaces/Delete",
    /// Reads; the same bytes as RemoveImage.
    ImageStatus = "/runtime.v1.ImageService/ImageStatus",
    /// Reads; the same bytes as RemoveImage.
    ImageStatusAlpha = "/runtime.v1alpha2.ImageService/ImageStatus",
    /// Reads; the same bytes as Images/Delete.
    ImagesGet = "/containerd.services.images.v1.Images/Get",
    /// Reads; the same bytes as Content/Delete.
    ContentInfo = "/containerd.services.content.v1.Content/Info",
    /// Reads; the same bytes as Snapshots/Remove.
    SnapshotsStat = "/containerd.services.snapshots.v1.Snapshots/Stat",
}

impl Known {
    /// The longest path of the list.
    pub(super) const LONGEST: usize = 64;

    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.path() == path)
    }

    /// Whether calls of it are told; the others only help to tell what a symbol is not.
    pub fn is_told(self) -> bool {
        !matches!(
            self,
            Self::ImageStatus
                | Self::ImageStatusAlpha
                | Self::ImagesGet
                | Self::ContentInfo
                | Self::SnapshotsStat
        )
    }
}

/// A set of known methods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MethodSet(u32);

impl MethodSet {
    pub fn insert(&mut self, method: Known) {
        self.0 |= 1 << method as u32;
    }

    pub fn contains(self, method: Known) -> bool {
        self.0 & 1 << method as u32 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Known> {
        Known::ALL.iter().copied().filter(move |method| self.contains(*method))
    }
}

impl fmt::Debug for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_path_of_its_own_and_a_bit() {
        assert!(Known::ALL.len() <= 32);
        for method in Known::ALL {
            assert_eq!(Known::from_path(method.path()), Some(*method));
            assert!(method.path().len() <= Known::LONGEST, "{method:?}");
            let mut set = MethodSet::default();
            set.insert(*method);
            assert_eq!(set.iter().collect::<Vec<_>>(), [*method]);
        }
    }
}
