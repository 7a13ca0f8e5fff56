//! Incidents and repairs in the words of the audit trail.

use std::{collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use crate::{
    audit::{Actor, Body, Clock, Draft, agent, image, repair},
    digest::Digest,
    incident::{self, AskedFor, Incident},
    probe::record::{Boottime, Process},
};

/// Entries of a list in an event.
const LISTED: usize = 20;

/// An incident as `image.deleted` or `image.damaged`.
pub(super) fn opened(incident: &Incident, subject: image::Image, clock: &Clock, would: Option<repair::Would>) -> Draft {
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
        from: Some(clock.time(incident.began)),
        to: Some(clock.time(until)),
        burst: Some(incident.burst),
    }));
    draft(Some(incident.id), until, clock, body)
}

pub(super) fn draft(incident: Option<Uuid>, at: Boottime, clock: &Clock, body: Body) -> Draft {
    Draft { severity: None, incident, time: clock.timestamp(at), body }
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
        time: Some(clock.time(*at)),
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

/// A gap in what could be seen.
pub(super) fn gap(what: agent::GapKind, count: u64, why: Option<String>) -> Draft {
    Draft::now(Body::AgentGap(agent::Gap {
        what,
        count: Some(count),
        from: None,
        to: None,
        first_seq: None,
        last_seq: None,
        why,
    }))
}
