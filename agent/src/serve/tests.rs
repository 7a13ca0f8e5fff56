//! The control socket and its client, over a real socket. The agent's side is made up here: what is tested is the way
//! between them.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{Config, Hold, Mode, Priority};

/// Answers with what the test can recognise.
#[derive(Default)]
struct MadeUp {
    /// Told when a restore that never ends is dropped.
    given_up: Arc<Notify>,
}

struct Tell(Arc<Notify>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Answers for MadeUp {
    async fn status(&self) -> Status {
        Status {
            version: "1.2.3".into(),
            since: "2026-01-02T03:04:05Z".parse().unwrap(),
            mode: Mode::Protect,
            node: "edge-7".into(),
            containerd: ContainerdStatus {
                address: "/run/containerd/containerd.sock".into(),
                version: None,
                connected: false,
                namespace: "k8s.io".into(),
            },
            probe: ProbeStatus::default(),
            counts: Counts { images: 3, ..Counts::default() },
            journal: JournalStatus { dir: "/var/log/imgwarden".into(), seq: 42 },
            rss: Some(1),
        }
    }

    async fn images(&self) -> Vec<ImageStatus> {
        let hold = HoldStatus { hold: Hold::Pin, state: HoldState::Ineffective, why: Some("too old".into()) };
        let image = |n: usize| ImageStatus {
            id: None,
            names: vec![format!("docker.io/library/a:{n}")],
            rule: Some("sandbox".into()),
            priority: Some(Priority::Critical),
            mode: Some(Mode::Protect),
            present: true,
            bytes: Some(1),
            holds: vec![hold.clone()],
            archive: Some(ArchiveStatus { path: "/a.tar".into(), verified: Some(true) }),
        };
        (0..2000).map(image).collect()
    }

    async fn plan(&self, config: Option<Config>) -> Plan {
        let rule = config.map(|config| config.state_dir.display().to_string());
        let image = PlannedImage {
            id: None,
            names: vec![],
            action: PlanAction::LetGo,
            rule,
            priority: None,
            holds: vec![],
            bytes: None,
            why: None,
        };
        Plan { images: vec![image] }
    }

    async fn restore(
        &self,
        asked: Restore,
        progress: mpsc::Sender<Progress>,
    ) -> Result<Restored, RestoreRefused> {
        if asked.image == "forever" {
            let _tell = Tell(self.given_up.clone());
            std::future::pending::<()>().await;
        }
        for done in 0..50 {
            let _ = progress.send(Progress { what: "reading".into(), done, total: Some(50) }).await;
        }
        match asked.from {
            Some(path) => Ok(Restored {
                id: None,
                names: vec![asked.image],
                method: Some("archive".into()),
                bytes_moved: 50,
                took_ms: 1.5,
                verified: true,
                source: Some(path),
            }),
            None => Err(RestoreRefused { reason: Refusal::NotFound, why: "no archive has it".into() }),
        }
    }
}

/// A served socket in a directory of its own.
struct Served {
    dir: tempfile::TempDir,
    socket: PathBuf,
    stop: CancellationToken,
    given_up: Arc<Notify>,
    task: JoinHandle<Result<(), ControlError>>,
}

fn serve() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("run/imgwarden.sock");
    let control = Control::bind(&socket).unwrap();
    let answers = MadeUp::default();
    let given_up = answers.given_up.clone();
    let stop = CancellationToken::new();
    let task = tokio::spawn(control.run(Arc::new(answers), stop.clone()));
    Served { dir, socket, stop, given_up, task }
}

impl Served {
    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task).await.unwrap().unwrap().unwrap();
        assert!(!self.socket.exists());
        drop(self.dir);
    }
}

#[tokio::test]
async fn what_the_agent_answers_arrives() {
    let served = serve();
    let client = Client::new(&served.socket);
    let expected = MadeUp::default();
    assert_eq!(client.status().await.unwrap(), expected.status().await);
    assert_eq!(client.images().await.unwrap(), expected.images().await);
    assert_eq!(client.plan(None).await.unwrap().images[0].rule, None);
    let config = Config { state_dir: "/elsewhere".into(), ..Config::default() };
    assert_eq!(client.plan(Some(&config)).await.unwrap().images[0].rule.as_deref(), Some("/elsewhere"));
    served.end().await;
}

#[tokio::test]
async fn a_restore_tells_its_progress_and_its_outcome() {
    let served = serve();
    let client = Client::new(&served.socket);
    let mut seen = Vec::new();
    let asked = Restore { image: "nginx".into(), from: Some("/a.tar".into()) };
    let restored = client.restore(&asked, |progress| seen.push(progress.done)).await.unwrap();
    assert_eq!((restored.names, restored.source), (vec!["nginx".to_owned()], Some("/a.tar".into())));
    assert_eq!(seen, (0..50).collect::<Vec<_>>());

    let asked = Restore { image: "nginx".into(), from: None };
    let refused = client.restore(&asked, |_| ()).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused(RestoreRefused { reason: Refusal::NotFound, .. })),
        "{refused}"
    );
    assert_eq!(refused.to_string(), "no archive has it");
    served.end().await;
}

#[tokio::test]
async fn whoever_hangs_up_has_given_up() {
    let served = serve();
    let client = Client::new(&served.socket);
    let asked = Restore { image: "forever".into(), from: None };
    let restore = client.restore(&asked, |_| ());
    tokio::time::timeout(Duration::from_millis(200), restore).await.unwrap_err();
    tokio::time::timeout(Duration::from_secs(10), served.given_up.notified()).await.unwrap();
    served.end().await;
}

#[tokio::test]
async fn a_stopping_agent_does_not_wait_for_an_asker_for_ever() {
    let served = serve();
    let client = Client::new(&served.socket);
    let asking = tokio::spawn(async move {
        let asked = Restore { image: "forever".into(), from: None };
        client.restore(&asked, |_| ()).await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    served.end().await;
    asking.abort();
}

#[tokio::test]
async fn the_socket_is_for_its_owner_and_only_a_stale_one_is_replaced() {
    let served = serve();
    let metadata = std::fs::metadata(&served.socket).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
    assert!(matches!(Control::bind(&served.socket), Err(ControlError::InUse(_))));

    let stale = served.dir.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    Control::bind(&stale).unwrap();

    let file = served.dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(Control::bind(&file), Err(ControlError::NotASocket(_))));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    served.end().await;
}

#[test]
fn root_and_the_agents_own_user_may_ask() {
    use super::control::is_permitted;
    assert!(is_permitted(0, 0) && is_permitted(0, 1000) && is_permitted(1000, 1000));
    assert!(!is_permitted(1000, 0) && !is_permitted(1000, 1001));
}

async fn raw(socket: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // One that is too long is answered before it has been read.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn what_is_no_question_is_refused() {
    let served = serve();
    let post = |body: &str| {
        let length = body.len();
        format!(
            "POST /v1/restore HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    };
    for (request, line) in [
        (
            "GET /v2/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            "HTTP/1.1 404 Not Found",
        ),
        (
            "PUT /v1/plan HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            "HTTP/1.1 405 Method Not Allowed",
        ),
        (post("{"), "HTTP/1.1 400 Bad Request"),
        (post("{\"image\": \"a\", \"form\": \"/a\"}"), "HTTP/1.1 422 Unprocessable Entity"),
        (post(&format!("{{\"image\": \"{}\"}}", "a".repeat(1 << 20))), "HTTP/1.1 413 Payload Too Large"),
        ("nonsense\r\n\r\n".to_owned(), "HTTP/1.1 400 Bad Request"),
    ] {
        assert_eq!(raw(&served.socket, request.as_bytes()).await, line, "{request:.80}");
    }
    served.end().await;
}

#[tokio::test]
async fn an_agent_that_is_not_there_or_speaks_otherwise_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    assert!(matches!(Client::new(&socket).status().await, Err(ClientError::NoAgent { .. })));
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let other = tokio::spawn(async move {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
            "",
        ] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 1024];
            let _ = stream.read(&mut question).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    assert!(matches!(Client::new(&socket).status().await, Err(ClientError::Answer { .. })));
    assert!(matches!(Client::new(&socket).status().await, Err(ClientError::Status { .. })));
    assert!(matches!(Client::new(&socket).status().await, Err(ClientError::Http { .. })));
    other.await.unwrap();
    // Nobody listens on what is left.
    assert!(matches!(Client::new(&socket).status().await, Err(ClientError::NoAgent { .. })));
}

#[tokio::test]
async fn a_cluster_is_told_health_and_numbers() {
    let http = Http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = http.address();
    let stop = CancellationToken::new();
    let task = tokio::spawn(http.run(Arc::new(MadeUp::default()), stop.clone()));
    let ask = async |path: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    };
    assert_eq!(ask("/livez").await, ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    let unready = ("HTTP/1.1 503 Service Unavailable".into(), "containerd does not answer\n".into());
    assert_eq!(ask("/readyz").await, unready);
    assert_eq!(ask("/v1/status").await.0, "HTTP/1.1 404 Not Found");
    let (head, body) = ask("/metrics").await;
    assert_eq!(head, "HTTP/1.1 200 OK");
    let values: Vec<_> = body.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        values,
        [
            "imgwarden_build_info{version=\"1.2.3\"} 1",
            "imgwarden_start_time_seconds 1767323045",
            "imgwarden_containerd_connected 0",
            "imgwarden_hooks 0",
            "imgwarden_hooks_attached 0",
            "imgwarden_images 3",
            "imgwarden_images_protected 0",
            "imgwarden_images_held 0",
            "imgwarden_incidents_total 0",
            "imgwarden_restored_total 0",
            "imgwarden_gaps_total 0",
            "imgwarden_journal_seq 42",
            "imgwarden_resident_memory_bytes 1",
        ]
    );
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), task).await.unwrap().unwrap().unwrap();
}
