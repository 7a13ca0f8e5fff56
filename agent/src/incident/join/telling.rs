//! An incident is put together and told, and it is said when it may be repaired.

use std::sync::Arc;

use uuid::Uuid;

use super::{Join, Live, RECREATE};
use crate::{
    audit::cause::Cause,
    digest::Digest,
    incident::{
        AskedFor, Incident, Kind, Lost, Orphaned, Outcome,
        asked::{Asked, Blame, references, senders},
        cause,
    },
    inventory::{
        Inventory,
        image::{Content, ImageRecord},
    },
    probe::record::Boottime,
    wire::request::{Header, Method},
};

impl Join {
    pub(super) fn damaged(
        &mut self,
        content: &Arc<Content>,
        blame: &Blame,
        cause: Cause,
        at: Boottime,
        inventory: &Inventory,
    ) -> Incident {
        let id = content.id;
        let remaining = remaining(inventory, id);
        let records = records_of(inventory, content);
        let content = Some(Arc::clone(content));
        let began = cause::request(blame).map_or(at, |(asked, _)| asked.request.at);
        let orphaned = Orphaned::default();
        self.incident(Kind::Damaged, id, records, remaining, content, blame, cause, orphaned, (at, began))
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where an incident is put together")]
    pub(super) fn incident(
        &mut self,
        kind: Kind,
        image: Option<Digest>,
        records: Vec<ImageRecord>,
        remaining: Vec<String>,
        content: Option<Arc<Content>>,
        blame: &Blame,
        cause: Cause,
        orphaned: Orphaned,
        (at, began): (Boottime, Boottime),
    ) -> Incident {
        let actor = cause::request(blame).map(|(asked, _)| asked.request.process.clone());
        let candidates = match blame {
            Blame::Several { candidates } => senders(candidates),
            Blame::Seen { .. } | Blame::Inferred { .. } | Blame::Nobody => Vec::new(),
        };
        let request = cause::request(blame).map(|(asked, count)| asked_for(asked, count));
        let bytes = orphaned.blobs.values().sum();
        let burst = self.bursts.of(actor.as_ref(), image, bytes, at);
        Incident {
            id: Uuid::now_v7(),
            kind,
            image,
            records,
            remaining,
            content,
            actor,
            candidates,
            request,
            cause,
            orphaned,
            lost: Lost::default(),
            burst,
            at,
            began,
        }
    }

    /// Tells an incident, and says when it may be repaired.
    pub(super) fn open(&mut self, incident: Incident, last: Boottime, out: &mut Vec<Outcome>) {
        let of_cri = incident.request.as_ref().is_some_and(|request| {
            request.method.as_deref().is_some_and(|method| method.ends_with("ImageService/RemoveImage"))
        });
        let sender = incident.actor.as_ref().map(|actor| actor.key);
        let id = incident.id;
        let at_once = of_cri || incident.kind == Kind::Damaged;
        out.push(Outcome::Opened(Box::new(incident.clone())));
        let repair = if at_once {
            out.push(Outcome::Repair { incident: id });
            None
        } else if sender.is_some_and(|key| self.book.ended(key)) {
            Some(last)
        } else {
            Some(Boottime(last.0 + RECREATE.as_nanos() as u64))
        };
        let lost = incident.lost.clone();
        self.live.push(Live { incident, lost, last, repair, sender });
    }
}

pub(super) fn records_of(inventory: &Inventory, content: &Content) -> Vec<ImageRecord> {
    inventory.records().filter(|record| record.target.digest == content.target.digest).cloned().collect()
}

pub(super) fn remaining(inventory: &Inventory, image: Option<Digest>) -> Vec<String> {
    image.map(|id| inventory.names_of(id).into_iter().collect()).unwrap_or_default()
}

fn asked_for(asked: &Asked, count: u32) -> AskedFor {
    let Asked { request, .. } = asked;
    AskedFor {
        method: match &request.method {
            Method::Path(path) => Some(path.clone()),
            Method::Symbol(_) | Method::Lost => None,
        },
        target: references(&request.call).map(str::to_owned),
        namespace: match &request.namespace {
            Header::Known(name) => Some(name.clone()),
            Header::Absent | Header::Unknown => None,
        },
        at: request.at,
        count,
    }
}
