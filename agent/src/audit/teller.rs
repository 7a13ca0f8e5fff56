//! The task that owns the journal: takes drafts from every stage over one bounded channel, and appends them.
//!
//! A disk that refuses writes delays nobody: drafts wait here, the oldest are given up when too many do, and a gap
//! record says how many. Sinks read the journal's files, so none of them can hold this task up.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::mpsc, task};
use tokio_util::sync::CancellationToken;

use super::{Body, Draft, Journal, journal::JournalError};

/// Drafts in the channel.
const CHANNEL: usize = 1024;
/// Drafts that wait while the disk refuses them.
const WAITING: usize = 4096;
/// How long after a refusal it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells events. Cloned for every stage that has something to say.
#[derive(Debug, Clone)]
pub struct Voice(mpsc::Sender<Draft>);

/// The teller has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the journal is closed")]
pub struct Closed;

impl Voice {
    /// Hands an event over; waits only while the journal is busy with a thousand others.
    pub async fn tell(&self, draft: Draft) -> Result<(), Closed> {
        self.0.send(draft).await.map_err(|_| Closed)
    }
}

/// What the teller counted since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Events written.
    pub written: AtomicU64,
    /// Writes that failed; each is tried again.
    pub errors: AtomicU64,
    /// Events given up.
    pub lost: AtomicU64,
    /// Events that say that something could not be seen or kept.
    pub gaps: AtomicU64,
    /// The last record's number.
    pub seq: AtomicU64,
}

/// The task that owns the journal.
#[derive(Debug)]
pub struct Teller {
    journal: Journal,
    drafts: mpsc::Receiver<Draft>,
    counts: Arc<Counts>,
}

impl Teller {
    pub fn new(journal: Journal) -> (Voice, Self) {
        let (voice, drafts) = mpsc::channel(CHANNEL);
        let counts = Counts { seq: journal.head().0.into(), ..Counts::default() };
        (Voice(voice), Self { journal, drafts, counts: Arc::new(counts) })
    }

    /// What it counts, for the metrics.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Runs until every [`Voice`] is dropped, or `stop` is cancelled; then writes what was told before, and closes the
    /// journal.
    pub async fn run(self, stop: CancellationToken) -> Result<(), JournalError> {
        let Self { mut journal, mut drafts, counts } = self;
        let mut waiting = VecDeque::new();
        let mut open = true;
        while open {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                count = drafts.recv_many(&mut batch, CHANNEL) => open = count > 0,
                () = tokio::time::sleep(AGAIN), if !waiting.is_empty() => {}
                () = stop.cancelled() => {
                    drafts.close();
                    while let Some(draft) = drafts.recv().await {
                        batch.push(draft);
                    }
                    open = false;
                }
            }
            waiting.extend(batch);
            let counts = counts.clone();
            // Files may block for as long as the disk likes; the runtime's threads must not.
            let write = task::spawn_blocking(move || {
                write(&mut journal, &mut waiting, &counts);
                (journal, waiting)
            });
            // It can only fail by a panic, which the runtime has reported: the agent ends with it.
            (journal, waiting) = match write.await {
                Ok(both) => both,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
        }
        task::spawn_blocking(move || {
            for draft in &waiting {
                journal.lose(draft);
            }
            counts.lost.fetch_add(waiting.len() as u64, Ordering::Relaxed);
            journal.close()
        })
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Writes what waits, in order, until the disk refuses.
fn write(journal: &mut Journal, waiting: &mut VecDeque<Draft>, counts: &Counts) {
    let mut written = 0;
    while let Some(draft) = waiting.front() {
        match journal.try_append(draft) {
            Ok(_) => {
                written += 1;
                if let Some(Draft { body: Body::AgentGap(_), .. }) = waiting.pop_front() {
                    counts.gaps.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(JournalError::Form { kind, source }) => {
                // It would be refused for ever.
                tracing::error!(kind, error = %source, "an event could not be written");
                counts.lost.fetch_add(1, Ordering::Relaxed);
                journal.lose(draft);
                waiting.pop_front();
            }
            Err(error) => {
                if counts.errors.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!(%error, "events wait for the journal");
                }
                break;
            }
        }
    }
    counts.written.fetch_add(written, Ordering::Relaxed);
    counts.seq.store(journal.head().0, Ordering::Relaxed);
    while waiting.len() > WAITING {
        if let Some(draft) = waiting.pop_front() {
            counts.lost.fetch_add(1, Ordering::Relaxed);
            journal.lose(&draft);
        }
    }
    if written > 0
        && let Err(error) = journal.sync()
    {
        counts.errors.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, "the journal is not on the disk");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Body, agent::Stopped, chain, journal::Options};

    fn draft(why: &str) -> Draft {
        Draft::now(Body::AgentStopped(Stopped { why: why.into() }))
    }

    #[tokio::test]
    async fn what_was_told_before_the_stop_is_in_the_journal() {
        let root = tempfile::tempdir().unwrap();
        let options = Options::new(root.path().join("log"), root.path().join("state"), "edge-7");
        let (journal, _) = Journal::open(&options).unwrap();
        let (voice, teller) = Teller::new(journal);
        let counts = teller.counts();
        let stop = CancellationToken::new();
        let task = tokio::spawn(teller.run(stop.clone()));
        for _ in 0..500 {
            voice.tell(draft("SIGTERM")).await.unwrap();
        }
        stop.cancel();
        task.await.unwrap().unwrap();
        assert_eq!(voice.tell(draft("late")).await, Err(Closed));
        assert_eq!(counts.written.load(Ordering::Relaxed), 500);
        let report = chain::verify(&options.dir).unwrap();
        assert!(report.intact() && report.records == 500, "{report:?}");
        assert_eq!(Journal::open(&options).unwrap().1.clean, Some(true));
    }

    #[tokio::test]
    async fn a_refusing_disk_delays_events_and_loses_none() {
        let root = tempfile::tempdir().unwrap();
        let options = Options::new(root.path().join("log"), root.path().join("state"), "edge-7");
        let (journal, _) = Journal::open(&options).unwrap();
        let (voice, teller) = Teller::new(journal);
        let task = tokio::spawn(teller.run(CancellationToken::new()));
        let file = options.dir.join("events.jsonl");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        voice.tell(draft("one")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::remove_dir(&file).unwrap();
        voice.tell(draft("two")).await.unwrap();
        drop(voice);
        task.await.unwrap().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("one") && text.contains("two"), "{text}");
    }
}
