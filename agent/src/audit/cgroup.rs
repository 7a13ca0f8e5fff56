//! Pod and container from the names of a process' cgroup: the last two directories, on cgroup v1 and v2, with the
//! kubelet's systemd driver (`kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope`) and its cgroupfs driver
//! (`pod<uid>/<id>`). Names that look like neither are no container's: nothing is guessed.

/// Where a process ran.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The pod's uid. A static pod's is 32 hex digits without dashes.
    pub pod: Option<String>,
    /// The container's id: 64 hex digits.
    pub container: Option<String>,
}

impl Place {
    /// From directory names, innermost last. The innermost that names a pod or a container counts.
    pub fn of(names: &[String]) -> Self {
        let mut place = Self::default();
        // With the systemd driver and a containerd that uses cgroupfs, one directory is called `slice:prefix:id`.
        for part in names.iter().rev().flat_map(|name| name.rsplit(':')) {
            if place.container.is_none() {
                place.container = container(part);
            }
            if place.pod.is_none() {
                place.pod = pod(part);
            }
        }
        place
    }
}

/// `<id>`, or `<runtime>-<id>.scope`.
fn container(name: &str) -> Option<String> {
    let scope = name.strip_suffix(".scope").and_then(|name| name.rsplit_once('-')).map(|(runtime, id)| {
        // conmon is CRI-O's monitor of the container, outside of it.
        if runtime.ends_with("conmon") { "" } else { id }
    });
    let id = scope.unwrap_or(name);
    (id.len() == 64 && id.bytes().all(is_hex)).then(|| id.to_owned())
}

/// `pod<uid>`, or `kubepods[-<class>]-pod<uid with _ for ->.slice`.
fn pod(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) if slice.starts_with("kubepods") => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        Some(_) => return None,
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let uuid = uid.len() == 36
        && uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_hex(byte),
        });
    (uuid || (uid.len() == 32 && uid.bytes().all(is_hex))).then_some(uid)
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn place(names: &[&str]) -> (Option<String>, Option<String>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let Place { pod, container } = Place::of(&names);
        (pod, container)
    }

    #[test]
    fn both_drivers_name_pod_and_container() {
        let both = (Some(UID.to_owned()), Some(ID.to_owned()));
        let systemd = UID.replace('-', "_");
        assert_eq!(place(&[&format!("pod{UID}"), ID]), both);
        for class in ["", "-burstable", "-besteffort"] {
            let slice = format!("kubepods{class}-pod{systemd}.slice");
            assert_eq!(place(&[&slice, &format!("cri-containerd-{ID}.scope")]), both);
            assert_eq!(place(&["system.slice", &format!("{slice}:cri-containerd:{ID}")]), both);
        }
    }

    #[test]
    fn a_static_pods_uid_has_no_dashes() {
        let uid = "0123456789abcdef0123456789abcdef";
        assert_eq!(place(&[&format!("pod{uid}"), ID]), (Some(uid.to_owned()), Some(ID.to_owned())));
    }

    #[test]
    fn a_cgroup_inside_a_container_still_names_it() {
        let scope = format!("cri-containerd-{ID}.scope");
        assert_eq!(place(&[&scope, "init.scope"]), (None, Some(ID.to_owned())));
    }

    #[test]
    fn the_hosts_own_cgroups_are_no_container() {
        for names in [
            &["user.slice", "session-3.scope"] as &[&str],
            &["system.slice", "containerd.service"],
            &["kubepods", "burstable"],
            &["podman", "podcast"],
            &["system.slice", &format!("crio-conmon-{ID}.scope")],
            &["default", "busybox"],
            &[],
        ] {
            assert_eq!(place(names), (None, None), "{names:?}");
        }
    }

    proptest! {
        #[test]
        fn any_names_are_read_without_a_panic(names in prop::collection::vec(".{0,120}", 0..3)) {
            let Place { pod, container } = Place::of(&names);
            prop_assert!(pod.is_none_or(|uid| uid.len() == 36 || uid.len() == 32));
            prop_assert!(container.is_none_or(|id| id.len() == 64));
        }
    }
}
