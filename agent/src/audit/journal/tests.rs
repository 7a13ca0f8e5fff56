//! What the journal promises, on real directories: crashes, power cuts, rotations and foreign hands included.

use std::{
    collections::HashSet,
    fs::{self, OpenOptions},
    io::Write,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::audit::{agent, chain::Wrong, reader::Record};

struct Place {
    _root: TempDir,
    options: Options,
}

fn place(max_segment: u64, max_size: u64) -> Place {
    let root = tempfile::tempdir().unwrap();
    let mut options = Options::new(root.path().join("log"), root.path().join("state"), "edge-7");
    options.host = Host { id: "machine".into(), boot_id: "boot-0".into() };
    options.max_segment = max_segment;
    options.max_size = max_size;
    Place { _root: root, options }
}

fn draft(number: u64) -> Draft {
    Draft::now(Body::AgentStopped(agent::Stopped { why: format!("number {number} {}", "x".repeat(200)) }))
}

fn records(dir: &Path) -> Vec<Record> {
    let mut tail = Tail::oldest(dir).unwrap();
    let mut records = Vec::new();
    while let Some(line) = tail.next_line().unwrap() {
        records.extend(line.record);
    }
    records
}

fn seqs(dir: &Path) -> Vec<u64> {
    records(dir).iter().map(|record| record.head.seq).collect()
}

#[test]
fn the_chain_goes_on_across_an_orderly_restart() {
    let Place { options, .. } = &place(10 << 20, 256 << 20);
    let (mut journal, opened) = Journal::open(options).unwrap();
    assert_eq!(opened, Opened::default());
    let first = journal.append(draft(1)).unwrap();
    assert_eq!((first.seq, first.prev), (1, None));
    let second = journal.append(draft(2)).unwrap();
    journal.close().unwrap();

    let (mut journal, opened) = Journal::open(options).unwrap();
    assert_eq!(opened.clean, Some(true));
    assert_eq!(opened.last.map(|last| (last.seq, last.time)), Some((2, second.time)));
    let third = journal.append(draft(3)).unwrap();
    assert_eq!((third.seq, third.stream), (3, first.stream));
    let report = chain::verify(&options.dir).unwrap();
    assert!(report.intact(), "{report:?}");
    assert_eq!((report.records, report.declared), (3, Vec::new()));
}

#[test]
fn a_killed_agent_loses_no_record_and_no_number() {
    let Place { options, .. } = &place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(options).unwrap();
    journal.append(draft(1)).unwrap();
    drop(journal);
    let (mut journal, opened) = Journal::open(options).unwrap();
    assert_eq!((opened.clean, opened.gaps.len()), (Some(false), 0));
    assert_eq!(journal.append(draft(2)).unwrap().seq, 2);
}

#[test]
fn a_torn_record_is_cut_off_and_said() {
    let Place { options, .. } = &place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(options).unwrap();
    journal.append(draft(1)).unwrap();
    drop(journal);
    let path = options.dir.join("events.jsonl");
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"schema\":\"imgw").unwrap();
    assert!(chain::verify(&options.dir).unwrap().torn);

    let (_, opened) = Journal::open(options).unwrap();
    assert_eq!(opened.torn, 15);
    assert_eq!(opened.gaps.iter().map(|gap| gap.what).collect::<Vec<_>>(), [GapKind::JournalTorn]);
    let report = chain::verify(&options.dir).unwrap();
    assert!(report.intact() && !report.torn, "{report:?}");
    assert_eq!(seqs(&options.dir), [1, 2]);
}

#[test]
fn after_a_power_cut_no_number_is_used_again() {
    let Place { mut options, .. } = place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(&options).unwrap();
    for number in 1..=5 {
        journal.append(draft(number)).unwrap();
    }
    drop(journal);
    // The disk has only the first two records; a shipper may have read all five.
    let path = options.dir.join("events.jsonl");
    let kept: usize = fs::read_to_string(&path).unwrap().lines().take(2).map(|line| line.len() + 1).sum();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(kept as u64).unwrap();
    options.host.boot_id = "boot-1".into();

    let (mut journal, opened) = Journal::open(&options).unwrap();
    assert_eq!(opened.gaps.len(), 1);
    assert_eq!((opened.gaps[0].first_seq, opened.gaps[0].last_seq), (Some(3), Some(1000)));
    assert_eq!(journal.append(draft(6)).unwrap().seq, 1002);
    let report = chain::verify(&options.dir).unwrap();
    assert!(report.intact(), "{report:?}");
    assert_eq!(report.declared[0].what, GapKind::JournalUnsynced);
}

#[test]
fn another_machine_or_state_directory_is_another_stream() {
    let Place { mut options, .. } = place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(&options).unwrap();
    let first = journal.append(draft(1)).unwrap();
    journal.close().unwrap();
    options.host.id = "clone".into();
    let (mut journal, opened) = Journal::open(&options).unwrap();
    assert_eq!(opened.clean, None);
    let second = journal.append(draft(1)).unwrap();
    assert_eq!(second.seq, 1);
    assert_ne!(second.stream, first.stream);
    journal.close().unwrap();
    fs::remove_dir_all(&options.state_dir).unwrap();
    let (mut journal, _) = Journal::open(&options).unwrap();
    assert_ne!(journal.append(draft(1)).unwrap().stream, second.stream);
    // They are one chain still.
    let report = chain::verify(&options.dir).unwrap();
    assert!(report.intact(), "{report:?}");
}

#[test]
fn full_size_removes_the_oldest_and_says_which() {
    let Place { options, .. } = &place(4_000, 12_000);
    let (mut journal, _) = Journal::open(options).unwrap();
    for number in 1..=60 {
        journal.append(draft(number)).unwrap();
    }
    let bytes: u64 = segment::list(&options.dir).unwrap().iter().map(|segment| segment.bytes).sum();
    assert!(bytes <= options.max_size, "{bytes}");
    let report = chain::verify(&options.dir).unwrap();
    assert!(report.intact(), "{report:?}");
    assert!(report.declared.iter().any(|gap| gap.last_seq + 1 == report.first.unwrap().seq), "{report:?}");
    // Without the record that says so, the same files are not whole.
    let oldest = segment::list(&options.dir).unwrap().remove(0);
    fs::remove_file(oldest.path).unwrap();
    assert!(!chain::verify(&options.dir).unwrap().intact());
}

#[test]
fn a_journal_removed_under_the_agent_begins_again_and_says_so() {
    let Place { options, .. } = &place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(options).unwrap();
    journal.append(draft(1)).unwrap();
    fs::remove_dir_all(&options.dir).unwrap();
    assert_eq!(journal.append(draft(2)).unwrap().seq, 3);
    let report = chain::verify(&options.dir).unwrap();
    assert_eq!(report.records, 2);
    let damaged = Wrong::Damaged { first_seq: 1, last_seq: 1 };
    assert_eq!(report.problems.iter().map(|problem| &problem.what).collect::<Vec<_>>(), [&damaged]);
}

#[test]
fn events_that_could_not_be_written_are_counted_and_said() {
    let Place { options, .. } = &place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(options).unwrap();
    journal.append(draft(1)).unwrap();
    // A directory in the file's place: neither the old file nor a new one can be written.
    let file = options.dir.join("events.jsonl");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    for number in 2..=4 {
        journal.append(draft(number)).unwrap_err();
    }
    fs::remove_dir(&file).unwrap();
    journal.append(draft(5)).unwrap();
    let gaps: Vec<Gap> = records(&options.dir)
        .iter()
        .filter_map(|record| match record.event().unwrap().body {
            Body::AgentGap(gap) => Some(gap),
            _ => None,
        })
        .collect();
    let counts: Vec<_> = gaps.iter().map(|gap| (gap.what, gap.count)).collect();
    assert!(counts.contains(&(GapKind::JournalFailed, Some(3))), "{gaps:?}");
}

#[test]
fn every_change_of_a_record_is_found() {
    let Place { options, .. } = &place(10 << 20, 256 << 20);
    let (mut journal, _) = Journal::open(options).unwrap();
    for number in 1..=3 {
        journal.append(draft(number)).unwrap();
    }
    let path = options.dir.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let check = |lines: &[&str]| {
        fs::write(&path, lines.iter().flat_map(|line| [*line, "\n"]).collect::<String>()).unwrap();
        chain::verify(&options.dir).unwrap()
    };
    let changed = lines[1].replace("number 2", "number 9");
    let spaced = lines[1].replace("\":", "\" : ");
    assert!(check(&lines).intact());
    assert!(check(&[lines[0], &spaced, lines[2]]).intact(), "other spacing is the same record");
    assert!(!check(&[lines[0], &changed, lines[2]]).intact());
    assert!(!check(&[lines[0], lines[2]]).intact());
    assert!(!check(&[lines[1], lines[2]]).intact());
    assert!(!check(&[lines[0], lines[1], lines[1], lines[2]]).intact());
    assert!(!check(&[lines[0], "{}", lines[1], lines[2]]).intact());
    assert!(!check(&[lines[1], lines[0], lines[2]]).intact());
}

/// What may happen to a journal.
#[derive(Debug, Clone)]
enum Act {
    Append(u8),
    Kill,
    Stop,
    /// The machine loses power, and of the active file's last bytes this many.
    PowerCut(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..12_u8).prop_map(Act::Append),
        1 => Just(Act::Kill),
        1 => Just(Act::Stop),
        2 => (0..3000_u16).prop_map(Act::PowerCut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_chain_holds_and_no_number_is_used_twice(acts in prop::collection::vec(act(), 1..12)) {
        let Place { mut options, .. } = place(5_000, 40_000);
        let mut told = HashSet::new();
        let (mut journal, _) = Journal::open(&options).unwrap();
        for (boot, act) in acts.into_iter().enumerate() {
            match act {
                Act::Append(count) => {
                    for number in 0..count {
                        let event = journal.append(draft(number.into())).unwrap();
                        prop_assert!(told.insert((event.stream, event.seq)), "{} twice", event.seq);
                    }
                    continue;
                }
                Act::Stop => journal.close().unwrap(),
                Act::Kill => drop(journal),
                Act::PowerCut(bytes) => {
                    drop(journal);
                    let file = OpenOptions::new().write(true).open(options.dir.join("events.jsonl")).unwrap();
                    let left = file.metadata().unwrap().len().saturating_sub(bytes.into());
                    file.set_len(left).unwrap();
                    options.host.boot_id = format!("boot-{}", boot + 1);
                }
            }
            journal = Journal::open(&options).unwrap().0;
        }
        let report = chain::verify(&options.dir).unwrap();
        prop_assert!(report.intact(), "{report:?}");
        prop_assert!(!report.torn);
    }

    #[test]
    fn any_bytes_in_the_directory_are_read_and_carried_on_after(
        parts in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                Just(b"\n".to_vec()),
                Just(b"{\"schema\":\"imgwarden/v1\",\"seq\":7}\n".to_vec()),
                Just(vec![b'['; 70_000]),
            ],
            0..8,
        ),
    ) {
        let Place { options, .. } = &place(10 << 20, 256 << 20);
        fs::create_dir_all(&options.dir).unwrap();
        fs::write(options.dir.join("events.jsonl"), parts.concat()).unwrap();
        fs::write(options.dir.join("events.3.jsonl"), parts.concat()).unwrap();
        fs::create_dir_all(&options.state_dir).unwrap();
        fs::write(options.state_dir.join("stream"), parts.concat()).unwrap();
        chain::verify(&options.dir).unwrap();
        let (mut journal, _) = Journal::open(options).unwrap();
        let event = journal.append(draft(1)).unwrap();
        let last = records(&options.dir).pop().unwrap();
        prop_assert_eq!(last.event().unwrap(), event);
    }
}
