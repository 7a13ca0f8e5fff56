//! containerd
