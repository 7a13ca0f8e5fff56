//! Incidents and repairs in the words of the audit trail.

use std::{collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use super::{
    repair::{Method, Repaired},
    tally::Tally,
};
use crate::{
    audit::{Actor, Body, Cause, Clock, Confidence, Draft, Kind, agent, image, repair},
    config::Hold,
    digest::Digest,
    hold::Verified,
    incident::{self, AskedFor, Incident, Outcome},
    probe::record::{Boottime, Process},
};

/// Entries of a list in an event.
const LISTED: usize = 20;

/// An incident as `image.deleted` or `image.damaged`.
pub(super) fn opened(
    incident: &Incident,
    subject: image::Image,
    clock: &Clock,
    would: Option<repair::Would>,
) -> Draft {
    let actor = incident.actor.as_ref().map(|process| actor(process, clock));
    let (candidates, candidates_count) = candidates(&incident.candidates, clock);
    let request = incident.request.as_ref().map(|asked| request(asked, clock));
    let burst = Some(incident.burst);
    let body = match incident.kind {
        incident::Kind::Deleted => Body::ImageDeleted(Box::new(image::Deleted {
            image: subject,
            actor,
            request,
            candidates,
            candidates_count,
            cause: incident.cause.clone(),
            orphaned: Some(orphaned(&incident.orphaned)),
            burst,
            would,
        })),
        incident::Kind::Damaged => Body::ImageDamaged(Box::new(image::Damaged {
            image: subject,
            actor,
            request,
            candidates,
            candidates_count,
            cause: Some(incident.cause.clone()),
            lost: lost(&incident.lost, &[]),
            burst,
            would,
        })),
    };
    draft(Some(incident.id), incident.at, clock, body)
}

/// The end of an incident.
pub(super) fn closed(
    incident: &Incident,
    seen: &incident::Lost,
    subject: image::Image,
    repair: Option<repair::Repair>,
    until: Boottime,
    clock: &Clock,
) -> Draft {
    let names: Vec<String> = match incident.kind {
        incident::Kind::Deleted => incident.records.iter().map(|record| record.name.clone()).collect(),
        incident::Kind::Damaged => Vec::new(),
    };
    let body = Body::IncidentClosed(Box::new(repair::Closed {
        image: subject,
        actor: incident.actor.as_ref().map(|process| actor(process, clock)),
        cause: Some(incident.cause.clone()),
        lost: lost(seen, &names),
        repair,
        from: Some(clock.at(incident.began).into()),
        to: Some(clock.at(until).into()),
        burst: Some(incident.burst),
    }));
    draft(Some(incident.id), until, clock, body)
}

pub(super) fn draft(incident: Option<Uuid>, at: Boottime, clock: &Clock, body: Body) -> Draft {
    Draft { severity: None, incident, time: clock.at(at), body }
}

pub(super) fn actor(process: &Arc<Process>, clock: &Clock) -> Actor {
    Actor::at(process, clock)
}

pub(super) fn candidates(processes: &[Arc<Process>], clock: &Clock) -> (Option<Vec<Actor>>, Option<u64>) {
    if processes.is_empty() {
        return (None, None);
    }
    let listed = processes.iter().take(LISTED).map(|process| actor(process, clock)).collect();
    (Some(listed), (processes.len() > LISTED).then_some(processes.len() as u64))
}

fn request(asked: &AskedFor, clock: &Clock) -> image::Request {
    let AskedFor { method, target, namespace, at, count } = asked;
    image::Request {
        method: method.clone(),
        target: target.clone(),
        namespace: namespace.clone(),
        time: Some(clock.at(*at).into()),
        count: Some(u64::from(*count)),
    }
}

fn orphaned(orphaned: &incident::Orphaned) -> image::Orphaned {
    let incident::Orphaned { last_name, names, blobs, snapshots } = orphaned;
    let (listed, blobs_count, bytes) = sizes(blobs);
    image::Orphaned {
        last_name: *last_name,
        names: names.iter().take(LISTED).cloned().collect(),
        names_count: (names.len() > LISTED).then_some(names.len() as u64),
        blobs: Some(listed),
        blobs_count: Some(blobs_count),
        blobs_bytes: Some(bytes),
        snapshots: Some(snapshots.iter().take(LISTED).map(Digest::to_string).collect()),
        snapshots_count: (snapshots.len() > LISTED).then_some(snapshots.len() as u64),
        bytes: Some(bytes),
    }
}

fn lost(lost: &incident::Lost, names: &[String]) -> image::Lost {
    let incident::Lost { blobs, snapshots, numbers } = lost;
    let (listed, blobs_count, bytes) = sizes(blobs);
    let snapshots: Vec<String> =
        snapshots.iter().map(Digest::to_string).chain(numbers.iter().map(u64::to_string)).collect();
    image::Lost {
        names: Some(names.iter().take(LISTED).cloned().collect()),
        names_count: (names.len() > LISTED).then_some(names.len() as u64),
        blobs: Some(listed),
        blobs_count: Some(blobs_count),
        blobs_bytes: Some(bytes),
        snapshots_count: (snapshots.len() > LISTED).then_some(snapshots.len() as u64),
        snapshots: Some(snapshots.into_iter().take(LISTED).collect()),
        bytes: Some(bytes),
    }
}

fn sizes(blobs: &BTreeMap<Digest, u64>) -> (Vec<image::BlobSize>, u64, u64) {
    let listed = blobs
        .iter()
        .take(LISTED)
        .map(|(digest, bytes)| image::BlobSize { digest: *digest, bytes: Some(*bytes) })
        .collect();
    (listed, blobs.len() as u64, blobs.values().sum())
}

/// Removals and bursts that belong to no single image.
pub(super) fn apart(outcome: &Outcome, tally: Tally, clock: &Clock) -> Option<Draft> {
    let removal = |actor: &Arc<Process>| Cause {
        kind: Kind::Unknown,
        tool: None,
        confidence: Confidence::Seen,
        evidence: vec![format!("the kernel saw pid {} remove it", actor.key.pid)],
    };
    let (incident, at, body) = match outcome {
        Outcome::BlobRemoved { digest, actor, incident, at } => {
            let body = agent::BlobRemoved {
                digest: Some(*digest),
                bytes: None,
                actor: Some(self::actor(actor, clock)),
                cause: Some(removal(actor)),
                count: None,
                from: None,
                to: None,
            };
            (*incident, *at, Body::BlobRemoved(Box::new(body)))
        }
        Outcome::SnapshotRemoved { number, chain, actor, at } => {
            let body = agent::SnapshotRemoved {
                snapshot: Some(chain.map_or_else(|| number.to_string(), |chain| chain.to_string())),
                actor: Some(self::actor(actor, clock)),
                cause: Some(removal(actor)),
                count: None,
                from: None,
                to: None,
            };
            (None, *at, Body::SnapshotRemoved(Box::new(body)))
        }
        Outcome::RemovalsFolded { count, actor, at } => {
            let body = agent::BlobRemoved {
                digest: None,
                bytes: None,
                actor: Some(self::actor(actor, clock)),
                cause: Some(removal(actor)),
                count: Some(*count),
                from: None,
                to: Some(clock.at(*at).into()),
            };
            (None, *at, Body::BlobRemoved(Box::new(body)))
        }
        Outcome::BurstClosed { burst, actor, images, from, to } => {
            let body = repair::BurstClosed {
                burst: *burst,
                actor: Some(self::actor(actor, clock)),
                cause: None,
                incidents_count: images.len() as u64,
                restored_count: tally.restored,
                protected_count: tally.protected,
                images: images
                    .iter()
                    .take(LISTED)
                    .map(|(id, bytes)| repair::ImageSize { id: *id, name: None, bytes: Some(*bytes) })
                    .collect(),
                images_count: images.len() as u64,
                images_bytes: Some(images.iter().map(|(_, bytes)| bytes).sum()),
                from: clock.at(*from).into(),
                to: clock.at(*to).into(),
            };
            (None, *to, Body::BurstClosed(Box::new(body)))
        }
        Outcome::DirectoryRemoved { actor, at } => {
            let who = self::actor(actor, clock);
            let why = format!(
                "{} (pid {}) removed a watched directory: what goes before it is watched again is not seen",
                who.program(),
                actor.key.pid
            );
            let gap = agent::Gap { why: Some(why), ..agent::Gap::of(agent::GapKind::Removals) };
            (None, *at, Body::AgentGap(gap))
        }
        _ => return None,
    };
    Some(draft(incident, at, clock, body))
}

pub(super) fn restored(
    image: image::Image,
    repaired: &Repaired,
    took_ms: f64,
    delete_to_usable_ms: Option<f64>,
    reason: Option<String>,
) -> repair::Restored {
    let Repaired { method, bytes_moved, source, names: _, verified } = repaired;
    repair::Restored {
        image,
        method: self::method(*method),
        bytes_moved: *bytes_moved,
        took_ms,
        delete_to_usable_ms,
        source: source.as_ref().map(|path| path.display().to_string()),
        verified: Some(self::verified(verified)),
        actor: None,
        reason,
    }
}

fn verified(verified: &Verified) -> repair::Verified {
    let Verified {
        image_status,
        pinned,
        blobs,
        blobs_expected,
        readable: _,
        snapshots,
        snapshots_expected,
        problems,
    } = verified;
    repair::Verified {
        image_status: *image_status,
        pinned: *pinned,
        blobs: *blobs,
        blobs_expected: *blobs_expected,
        snapshots: *snapshots,
        snapshots_expected: *snapshots_expected,
        problems: problems.clone(),
    }
}

pub(super) const fn method(method: Method) -> repair::Method {
    match method {
        Method::Records => repair::Method::Records,
        Method::Shadow => repair::Method::Shadow,
        Method::Archive => repair::Method::Archive,
    }
}

pub(super) const fn method_name(method: Method) -> &'static str {
    match method {
        Method::Records => "records",
        Method::Shadow => "shadow",
        Method::Archive => "archive",
    }
}

pub(super) const fn hold(hold: Hold) -> repair::Hold {
    match hold {
        Hold::Pin => repair::Hold::Pin,
        Hold::Lease => repair::Hold::Lease,
        Hold::Shadow => repair::Hold::Shadow,
        Hold::Link => repair::Hold::Link,
        Hold::Archive => repair::Hold::Archive,
    }
}
