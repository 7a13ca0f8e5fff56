//! An event as one sentence for a person. Everything in it that others chose is made fit for a terminal.

use std::fmt::Write as _;

use super::{
    Actor, Body, Cause, Image,
    agent::{Gap, GapKind},
    image::{BlobSize, Lost, Release, ReleaseWhy},
    repair::{Method, Outcome, Repair, Would},
    text::{plain, short},
};

/// The longest name or reason in a sentence, in bytes.
const PART: usize = 200;
/// The longest reason of a failure, in bytes: it names a digest, a tarball and what is wrong with it.
const REASON: usize = 600;

impl Body {
    /// The event as one sentence for a person, with what to type next where there is something.
    pub fn message(&self) -> String {
        match self {
            Self::AgentStarted(started) => {
                let backend = started.backend.as_deref().unwrap_or("no kernel side");
                let missing: Vec<String> =
                    started.hooks.iter().filter(|hook| !hook.attached).map(|hook| part(&hook.name)).collect();
                let mut text = format!("imgwarden {} started with {}", part(&started.version), part(backend));
                if !missing.is_empty() {
                    push(&mut text, format_args!("; not seen: {}", missing.join("; ")));
                }
                if started.clean == Some(false) {
                    text.push_str("; the last run did not end in order");
                }
                text
            }
            Self::AgentStopped(stopped) => format!("imgwarden stopped: {}", part(&stopped.why)),
            Self::AgentRecovered(recovered) => {
                let what: Vec<String> = recovered.what.iter().take(5).map(|what| part(what)).collect();
                format!("put in order after an unclean end: {}", what.join("; "))
            }
            Self::AgentGap(gap) => self::gap(gap),
            Self::AgentCheckpoint(checkpoint) => {
                let lost: u64 = checkpoint.lost.values().fold(0, |sum, count| sum.saturating_add(*count));
                let seen: u64 = checkpoint.seen.values().fold(0, |sum, count| sum.saturating_add(*count));
                format!("{seen} records seen, {lost} lost, {} images protected", checkpoint.protected)
            }
            Self::ConfigApplied(config) => match config.changed.as_deref() {
                Some([_, ..]) => {
                    let keys: Vec<String> =
                        config.changed.iter().flatten().take(8).map(|key| part(key)).collect();
                    format!("config applied; changed: {}", keys.join(", "))
                }
                _ => "config applied".into(),
            },
            Self::ConfigRejected(config) => {
                format!(
                    "config refused, the old one stays: {}",
                    part(config.why.as_deref().unwrap_or("unknown"))
                )
            }
            Self::ImageDeleted(deleted) => {
                let by = by(deleted.actor.as_ref(), deleted.candidates.as_deref(), Some(&deleted.cause));
                let partly = deleted.orphaned.as_ref().is_some_and(|orphaned| !orphaned.last_name);
                let mut text = if partly {
                    let gone = deleted.orphaned.iter().flat_map(|orphaned| &orphaned.names).next();
                    let gone = gone.map_or_else(|| "a name".into(), |gone| part(gone));
                    format!("{by} deleted the name {gone}; the image has others left")
                } else {
                    format!("{by} deleted {}", name(&deleted.image))
                };
                if let Some(would) = &deleted.would {
                    push(&mut text, format_args!("; {}", self::would(would)));
                }
                text
            }
            Self::IncidentClosed(closed) => {
                let lost = lost(&closed.lost);
                let mut text = format!("{}: {lost}", name(&closed.image));
                if let Some(repair) = &closed.repair {
                    push(&mut text, format_args!("; {}", outcome(repair)));
                }
                text
            }
            Self::BurstClosed(burst) => format!(
                "{} deleted {} images ({}), {} of them protected, {} restored",
                by(burst.actor.as_ref(), None, burst.cause.as_ref()),
                burst.images_count,
                burst.images_bytes.map_or_else(|| "size unknown".into(), bytes),
                burst.protected_count,
                burst.restored_count,
            ),
            Self::ImageDamaged(damaged) => {
                let by = by(damaged.actor.as_ref(), damaged.candidates.as_deref(), damaged.cause.as_ref());
                let mut text = format!("{by} damaged {}: {}", name(&damaged.image), lost(&damaged.lost));
                if let Some(would) = &damaged.would {
                    push(&mut text, format_args!("; {}", self::would(would)));
                }
                text
            }
            Self::ImageRetagged(retagged) => {
                let by = by(retagged.actor.as_ref(), None, None);
                match (&retagged.before, &retagged.after) {
                    (Some(before), Some(after)) if before != after => {
                        let (before, after) = (before.to_hex(), after.to_hex());
                        let name = part(&retagged.name);
                        format!("{by} moved {name} from {} to {}", &before[..12], &after[..12])
                    }
                    _ => {
                        format!("{by} deleted {} and created it again: nothing is lost", part(&retagged.name))
                    }
                }
            }
            Self::ImageRestored(restored) => {
                let mut text = format!("restored {} {}", name(&restored.image), how(restored.method));
                if restored.bytes_moved > 0 {
                    push(&mut text, format_args!(", {} read", bytes(restored.bytes_moved)));
                }
                match restored.delete_to_usable_ms {
                    Some(ms) => push(&mut text, format_args!(", usable {} after the deletion", duration(ms))),
                    None => push(&mut text, format_args!(", in {}", duration(restored.took_ms))),
                }
                if let Some(problem) = restored.verified.iter().flat_map(|verified| &verified.problems).next()
                {
                    push(&mut text, format_args!("; not verified: {}", part(problem)));
                }
                text
            }
            Self::ImageRestoreFailed(failed) => {
                let reason = short(&plain(&failed.reason), REASON);
                let mut text = format!("could not restore {}: {reason}", name(&failed.image));
                if let Some(until) = failed.until {
                    push(&mut text, format_args!("; tried again by {:.0}", until.0));
                }
                text
            }
            Self::ImageRestoreDeferred(deferred) => {
                let until = deferred.until.map(|until| format!(" until {:.0}", until.0)).unwrap_or_default();
                format!("restoring {} waits{until}: {}", name(&deferred.image), part(&deferred.reason))
            }
            Self::ImageUnpinned(pin) => {
                let by = by(pin.actor.as_ref(), pin.candidates.as_deref(), None);
                let mut text = format!("{by} took the pin off {}", many(&pin.image, pin.images_count));
                if let Some(would) = &pin.would {
                    push(&mut text, format_args!("; {}", self::would(would)));
                }
                text
            }
            Self::ImageRepinned(pin) => format!("pinned {} again", many(&pin.image, pin.images_count)),
            Self::ImagePinIneffective(pin) => {
                let why = pin.why.as_deref().unwrap_or("CRI does not report it as pinned");
                format!("the pin on {} does nothing: {}", many(&pin.image, pin.images_count), part(why))
            }
            Self::ImageSuperseded(release) => {
                let until =
                    release.until.map(|until| format!(", kept until {:.0}", until.0)).unwrap_or_default();
                format!("{} is superseded{until}{}", name(&release.image), because(release))
            }
            Self::ImageReleased(release) => {
                let who = match release.why {
                    ReleaseWhy::Operator => by(release.actor.as_ref(), None, None),
                    ReleaseWhy::Superseded | ReleaseWhy::Disk | ReleaseWhy::Rule => "imgwarden".into(),
                };
                let until = release.until.map(|until| format!(" until {:.0}", until.0)).unwrap_or_default();
                format!("{who} released {}{until}{}", name(&release.image), because(release))
            }
            Self::HoldTaken(hold) => {
                let why = hold.why.as_deref().map(|why| format!(" ({})", part(why))).unwrap_or_default();
                format!("{} is held by {}{why}", name(&hold.image), word(&hold.hold))
            }
            Self::HoldDropped(hold) => {
                let why = hold.why.as_deref().map(|why| format!(": {}", part(why))).unwrap_or_default();
                format!("{} is no longer held by {}{why}", name(&hold.image), word(&hold.hold))
            }
            Self::BlobRemoved(removed) => {
                let by = by(removed.actor.as_ref(), None, removed.cause.as_ref());
                match (&removed.digest, removed.count) {
                    (Some(digest), None | Some(1)) => format!("{by} removed the blob {digest}"),
                    (_, count) => format!("{by} removed {} blobs", count.unwrap_or(1)),
                }
            }
            Self::SnapshotRemoved(removed) => {
                let by = by(removed.actor.as_ref(), None, removed.cause.as_ref());
                match (&removed.snapshot, removed.count) {
                    (Some(snapshot), None | Some(1)) => {
                        format!("{by} removed the snapshot {}", part(snapshot))
                    }
                    (_, count) => format!("{by} removed {} snapshots", count.unwrap_or(1)),
                }
            }
        }
    }
}

/// Writing to a String can't fail.
fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

fn part(text: &str) -> String {
    short(&plain(text), PART)
}

/// The name that a person would use.
fn name(image: &Image) -> String {
    let tagged = image.names.iter().find(|name| !name.starts_with("sha256:") && !name.contains('@'));
    match (tagged.or_else(|| image.names.first()), &image.id) {
        (Some(name), _) => part(name),
        (None, Some(id)) => id.to_string(),
        (None, None) => "an image".into(),
    }
}

fn many(image: &Image, count: Option<u64>) -> String {
    match count {
        Some(count) if count > 1 => format!("{} and {} more", name(image), count - 1),
        _ => name(image),
    }
}

/// Who: `crictl (root, login alice)`, `sh (root, pod default/web)`, `crictl or ctr`, `containerd's garbage collector`.
fn by(actor: Option<&Actor>, candidates: Option<&[Actor]>, cause: Option<&Cause>) -> String {
    use super::Kind;
    if let Some(actor) = actor {
        return self::actor(actor);
    }
    if let Some([_, ..]) = candidates {
        let who: Vec<String> = candidates.iter().copied().flatten().take(3).map(self::actor).collect();
        return format!("one of {}", who.join(" or "));
    }
    match cause.map(|cause| cause.kind) {
        Some(Kind::KubeletGcSpace | Kind::KubeletGcAge) => "the kubelet's image GC".into(),
        Some(Kind::KubeletEviction) => "the kubelet's eviction".into(),
        Some(Kind::Kubelet) => "the kubelet".into(),
        Some(Kind::ContainerdGc) => "containerd's garbage collector".into(),
        Some(Kind::ContainerdExpired) => "containerd's expiry".into(),
        Some(Kind::Imgwarden) => "imgwarden".into(),
        Some(Kind::Cli | Kind::Distro | Kind::Client | Kind::Filesystem | Kind::Unknown) | None => {
            "an unknown process".into()
        }
    }
}

fn actor(actor: &Actor) -> String {
    let user = actor.user.clone().unwrap_or_else(|| format!("uid {}", actor.uid));
    let mut text = format!("{} ({}", part(actor.program()), part(&user));
    match (&actor.login_user, actor.login_uid) {
        (Some(login), _) => push(&mut text, format_args!(", login {}", part(login))),
        (None, Some(uid)) => push(&mut text, format_args!(", login uid {uid}")),
        (None, None) => {}
    }
    if let Some(pod) = &actor.pod {
        match (&pod.namespace, &pod.name) {
            (Some(namespace), Some(name)) => {
                push(&mut text, format_args!(", pod {}/{}", part(namespace), part(name)));
            }
            _ => push(&mut text, format_args!(", pod {}", part(&pod.uid))),
        }
    } else if let Some(container) = &actor.container {
        push(&mut text, format_args!(", container {}", short(&plain(&container.id), 12 + '…'.len_utf8())));
    }
    text + ")"
}

fn lost(lost: &Lost) -> String {
    let counted = |count: Option<u64>, listed: Option<usize>| count.or(listed.map(|listed| listed as u64));
    let blobs = counted(lost.blobs_count, lost.blobs.as_ref().map(Vec::len)).unwrap_or(0);
    let snapshots = counted(lost.snapshots_count, lost.snapshots.as_ref().map(Vec::len)).unwrap_or(0);
    if blobs == 0 && snapshots == 0 {
        return "no content was lost".into();
    }
    let listed = |blobs: &Vec<BlobSize>| blobs.iter().map(|blob| blob.bytes).sum::<Option<u64>>();
    let size = lost.bytes.or(lost.blobs_bytes).or_else(|| lost.blobs.as_ref().and_then(listed));
    let size = size.map(|size| format!(" ({})", bytes(size))).unwrap_or_default();
    let counted = [(blobs, "blob"), (snapshots, "snapshot")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }));
    format!("lost {}{size}", counted.collect::<Vec<_>>().join(" and "))
}

fn outcome(repair: &Repair) -> String {
    let why = repair.reason.as_deref().map(|why| format!(": {}", part(why))).unwrap_or_default();
    match repair.outcome {
        Outcome::Restored => {
            let how = repair.method.map(|method| format!(" {}", how(method))).unwrap_or_default();
            let when = repair.delete_to_usable_ms.or(repair.took_ms);
            format!("restored{how}{}", when.map(|ms| format!(" in {}", duration(ms))).unwrap_or_default())
        }
        Outcome::Failed => format!("could not be restored{why}"),
        Outcome::Deferred => format!("restoring waits{why}"),
        Outcome::Retagged => "its client created it again".into(),
        Outcome::NotProtected => "not protected".into(),
        Outcome::Released => format!("released, stays deleted{why}"),
        Outcome::Observed => format!("only observed{why}"),
        Outcome::NotNeeded => "nothing to repair".into(),
    }
}

fn would(would: &Would) -> String {
    let method = would.method.map(|method| format!("would be restored {}", how(method)));
    let method = method.unwrap_or_else(|| "could not be restored".into());
    let why = would.why.as_deref().map(|why| format!(" ({})", part(why))).unwrap_or_default();
    format!("only observed: {method}{why}")
}

fn because(release: &Release) -> String {
    let why = match release.why {
        ReleaseWhy::Superseded | ReleaseWhy::Operator => None,
        ReleaseWhy::Disk => Some("the image filesystem is below its floor"),
        ReleaseWhy::Rule => Some("no rule selects it any more"),
    };
    match (release.reason.as_deref(), why) {
        (Some(reason), _) => format!(": {}", part(reason)),
        (None, Some(why)) => format!(": {why}"),
        (None, None) => String::new(),
    }
}

fn gap(gap: &Gap) -> String {
    let what = match gap.what {
        GapKind::Sends => "parts of requests were lost in the ring",
        GapKind::SendsUnreadable => "parts of requests could not be read",
        GapKind::Removals => "removals were lost in the ring",
        GapKind::Execs => "programs could not be noted when they were started",
        GapKind::Requests => "requests could not be decoded",
        GapKind::ContainerdEvents => "containerd's events could not be understood",
        GapKind::Images => "more image names than are kept in mind",
        GapKind::JournalFailed => "events could not be written to the journal",
        GapKind::JournalRemoved => "the oldest records were removed from the journal",
        GapKind::JournalTorn => "a record was cut off by a crash",
        GapKind::JournalUnsynced => "the last records before the machine stopped may be lost",
        GapKind::JournalDamaged => "records of the journal were removed or changed",
    };
    let count = gap.count.map(|count| format!(" ({count})")).unwrap_or_default();
    let seqs = match (gap.first_seq, gap.last_seq) {
        (Some(first), Some(last)) => format!(", numbers {first} to {last}"),
        _ => String::new(),
    };
    let why = gap.why.as_deref().map(|why| format!(": {}", part(why))).unwrap_or_default();
    format!("{what}{count}{seqs}{why}")
}

const fn how(method: Method) -> &'static str {
    match method {
        Method::Records => "by creating its records again",
        Method::Lease => "from its lease",
        Method::Shadow => "from its shadow",
        Method::Link => "from its links",
        Method::Archive => "from its archive",
    }
}

fn word(hold: &super::repair::Hold) -> &'static str {
    use super::repair::Hold;
    match hold {
        Hold::Pin => "its pin",
        Hold::Lease => "a lease",
        Hold::Shadow => "its shadow",
        Hold::Link => "links",
        Hold::Archive => "its archive",
    }
}

/// `3.2 KB`: as disks are sold.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// `12 ms`, `3.4 s`, `5 min`, `2 h`, `3 d`.
pub fn duration(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 60_000.0 => format!("{:.1} s", ms / 1000.0),
        ms if ms < 3_600_000.0 => format!("{:.0} min", ms / 60_000.0),
        ms if ms < 48.0 * 3_600_000.0 => format!("{:.0} h", ms / 3_600_000.0),
        ms => format!("{:.0} d", ms / (24.0 * 3_600_000.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_short() {
        assert_eq!(
            [0, 999, 1000, 3208, 999_999_999].map(bytes),
            ["0 B", "999 B", "1.0 KB", "3.2 KB", "1.0 GB"]
        );
        let durations = [0.25, 12.4, 3400.0, 300_000.0, 7_200_000.0, 259_200_000.0].map(duration);
        assert_eq!(durations, ["0.2 ms", "12 ms", "3.4 s", "5 min", "2 h", "3 d"]);
    }
}
