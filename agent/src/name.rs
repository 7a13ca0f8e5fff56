//! Image names as containerd normalises them. (Skeleton: filled by the config work.)
