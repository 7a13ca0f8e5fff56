//! One event of each type, in the order of the schema.

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::audit::{Body, Event};

const PAUSE: &str = "docker.io/rancher/mirrored-pause:3.6";
const LATER: &str = "2026-01-02T03:05:05.000000000Z";

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// An event with a given body; its sentence and its severity are the body's own.
fn event(mut body: Value) -> Event {
    let typed = Body::deserialize(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
    let incident = typed.image().is_some().then(|| json!("01937b6e-0000-7000-8000-000000000002"));
    let head = json!({
        "schema": "imgwarden/v1",
        "id": "01937b6e-0000-7000-8000-000000000001",
        "seq": 42,
        "prev": digest('a'),
        "stream": "01937b6e-0000-7000-8000-000000000000",
        "time": "2026-01-02T03:04:05.678901234Z",
        "uptime_ns": 812_345_678_901_u64,
        "node": "edge-7",
        "host": {"id": "4c4c4544004d3510", "boot_id": "9f0e6c1a-2b3d-4e5f-8a9b-0c1d2e3f4a5b"},
        "severity": typed.severity(),
        "message": typed.message(),
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(head.as_object().unwrap().clone());
    fields.extend(incident.map(|incident| ("incident".to_owned(), incident)));
    let event = Event::deserialize(&body).unwrap();
    assert_eq!(serde_json::to_value(&event).unwrap(), body, "a field of the example is none of the type's");
    event
}

fn image() -> Value {
    json!({
        "id": digest('6'), "names": [PAUSE, digest('6')],
        "rule": "sandbox", "priority": "critical", "protected": true,
    })
}

fn actor() -> Value {
    json!({
        "pid": 4242, "start": "2026-01-02T03:04:05.650000000Z", "comm": "crictl", "exe": "/usr/bin/crictl",
        "argv": ["crictl", "rmi", PAUSE], "uid": 0, "user": "root",
        "login_uid": 1000, "login_user": "alice", "session_id": 3,
        "parents": [{"pid": 4200, "comm": "bash", "exe": "/usr/bin/bash", "argv": ["-bash"]}],
        "cgroup": "/user-1000.slice/session-3.scope", "host": true,
    })
}

fn cause() -> Value {
    json!({
        "kind": "cli", "tool": "crictl", "confidence": "seen",
        "evidence": ["request seen on containerd's socket from pid 4242"],
    })
}

fn lost() -> Value {
    json!({
        "names": [PAUSE],
        "blobs": [{"digest": digest('0'), "bytes": 3208}], "blobs_count": 4, "blobs_bytes": 301_234,
        "snapshots": [digest('1')], "snapshots_count": 1, "bytes": 301_234,
    })
}

pub(super) fn all() -> Vec<Event> {
    let bodies = [
        json!({
            "type": "agent.started", "version": "0.1.0", "backend": "tracepoint",
            "hooks": [
                {"name": "sys_exit", "attached": true},
                {"name": "io_uring", "attached": false, "why": "the tracepoint backend does not see it"},
            ],
            "containerd": "2.4.2", "mode": "protect", "holds": ["pin", "lease", "shadow", "archive"],
            "config": digest('c'), "clean": true,
            "down_from": "2026-01-02T03:03:00.000000000Z", "down_to": "2026-01-02T03:04:05.000000000Z",
        }),
        json!({"type": "agent.stopped", "why": "SIGTERM"}),
        json!({
            "type": "agent.recovered", "what": ["a lease of an unfinished restore was removed"],
            "down_from": "2026-01-02T03:03:00.000000000Z", "down_to": "2026-01-02T03:04:05.000000000Z",
        }),
        json!({"type": "agent.gap", "what": "removals", "count": 12}),
        json!({
            "type": "agent.checkpoint", "seen": {"removals": 40, "requests": 6}, "lost": {"removals": 0},
            "protected": 3, "last_seq": 41, "hash": digest('a'),
        }),
        json!({
            "type": "config.applied", "before": digest('b'), "after": digest('c'), "changed": ["protect", "mode"],
        }),
        json!({
            "type": "config.rejected", "before": digest('c'), "after": digest('d'),
            "why": "/etc/imgwarden/config.toml:3: unknown key \"backnd\": did you mean \"backend\"?",
        }),
        json!({
            "type": "image.deleted", "image": image(), "actor": actor(), "cause": cause(),
            "request": {
                "method": "/runtime.v1.ImageService/RemoveImage", "target": digest('6'), "namespace": "k8s.io",
                "time": "2026-01-02T03:04:05.670000000Z", "count": 1,
            },
            "orphaned": {
                "last_name": true, "names": [PAUSE],
                "blobs": [{"digest": digest('0'), "bytes": 3208}], "blobs_count": 4, "blobs_bytes": 301_234,
                "snapshots": [digest('1')], "snapshots_count": 1, "bytes": 301_234,
            },
        }),
        json!({
            "type": "incident.closed", "image": image(), "actor": actor(), "cause": cause(), "lost": lost(),
            "repair": {
                "outcome": "restored", "method": "archive", "bytes_moved": 301_234, "took_ms": 380.25,
                "delete_to_usable_ms": 412.031,
            },
            "from": "2026-01-02T03:04:05.670000000Z", "to": "2026-01-02T03:04:06.082031000Z",
        }),
        json!({
            "type": "burst.closed", "burst": "01937b6e-0000-7000-8000-000000000003", "actor": actor(),
            "cause": cause(), "incidents_count": 40, "restored_count": 1, "protected_count": 1,
            "images": [{"id": digest('7'), "name": "docker.io/library/big:1", "bytes": 2_000_000_000_u64}],
            "images_count": 40, "images_bytes": 3_200_000_000_u64,
            "from": "2026-01-02T03:04:00.000000000Z", "to": LATER,
        }),
        json!({
            "type": "image.damaged", "image": image(), "actor": actor(),
            "cause": {
                "kind": "filesystem", "tool": "rm", "confidence": "seen",
                "evidence": ["unlink of the blob seen from pid 4242"],
            },
            "lost": {
                "blobs": [{"digest": digest('0'), "bytes": 3208}], "blobs_count": 1, "blobs_bytes": 3208,
                "bytes": 3208,
            },
        }),
        json!({
            "type": "image.retagged", "image": image(), "name": "docker.io/library/app:latest", "actor": actor(),
            "before": digest('0'), "after": digest('1'),
        }),
        json!({
            "type": "image.restored", "image": image(), "method": "archive", "bytes_moved": 301_234,
            "took_ms": 380.25, "delete_to_usable_ms": 412.031, "source": "/images/airgap.tar",
            "verified": {
                "image_status": true, "pinned": true, "blobs": 4, "blobs_expected": 4, "snapshots": 1,
                "snapshots_expected": 1, "problems": [],
            },
        }),
        json!({
            "type": "image.restore_failed", "image": image(), "method": "archive",
            "reason": "/images/airgap.tar: layer sha256:0000 has another hash", "until": LATER,
            "source": "/images/airgap.tar", "took_ms": 12.5,
        }),
        json!({
            "type": "image.restore_deferred", "image": image(), "reason": "deleted 4 times in a minute",
            "until": LATER,
        }),
        json!({
            "type": "image.unpinned", "image": image(), "actor": actor(),
            "label": "io.cri-containerd.pinned=pinned",
        }),
        json!({"type": "image.repinned", "image": image(), "label": "io.cri-containerd.pinned=pinned"}),
        json!({
            "type": "image.pin_ineffective", "image": image(), "label": "io.cri-containerd.pinned=pinned",
            "why": "containerd 1.6.20 does not report pins",
        }),
        json!({
            "type": "image.superseded", "image": image(), "why": "superseded",
            "reason": "docker.io/rancher/mirrored-pause:3.7", "until": LATER,
        }),
        json!({
            "type": "image.released", "image": image(), "why": "operator", "actor": actor(),
            "reason": "roll-out of 3.7", "until": LATER,
        }),
        json!({"type": "hold.taken", "image": image(), "hold": "lease", "why": "sandbox", "bytes": 301_234}),
        json!({"type": "hold.dropped", "image": image(), "hold": "lease", "why": "superseded", "bytes": 301_234}),
        json!({"type": "blob.removed", "digest": digest('0'), "bytes": 3208, "actor": actor()}),
        json!({
            "type": "snapshot.removed", "count": 118,
            "cause": {"kind": "containerd.gc", "confidence": "inferred", "evidence": []},
            "from": "2026-01-02T03:04:00.000000000Z", "to": LATER,
        }),
    ];
    bodies.map(event).into()
}
