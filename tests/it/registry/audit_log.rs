//! The log itself: what it detects, and how it goes on after a crash.

use std::path::{Path, PathBuf};

use serde_json::json;
use worktree::audit::{Action, Event, Fault, Filter, Log, Together, Told};
use worktree::model::Code;
use worktree::model::actor::Actor;

struct Place {
    dir: tempfile::TempDir,
    log: Log,
}

fn place(max_bytes: u64) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::new(dir.path().join("audit"), max_bytes);
    Place { dir, log }
}

fn fill(log: &Log, count: u64) {
    for number in 0..count {
        let event = Event::new(Action::Remove, json!({"branch": format!("b{number}")}));
        let event = event.about(&format!("wt_{number:012x}"), "/r/.git");
        log.append(i64::try_from(number).unwrap(), &Actor::caller("w", Some("ada")), &event).unwrap();
    }
}

fn current(log: &Log) -> PathBuf {
    log.dir().join("audit.jsonl")
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn put(path: &Path, lines: &[String]) {
    std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// The faults after the lines of the current file were changed so.
fn faults(change: impl FnOnce(&mut Vec<String>)) -> Vec<Fault> {
    let place = place(1 << 20);
    fill(&place.log, 5);
    let path = current(&place.log);
    let mut all = lines(&path);
    change(&mut all);
    put(&path, &all);
    place.log.verify().unwrap().faults
}

#[test]
fn an_untouched_log_is_intact_and_an_empty_one_too() {
    let place = place(1 << 20);
    assert!(place.log.verify().unwrap().is_intact());
    fill(&place.log, 5);
    let found = place.log.verify().unwrap();
    assert_eq!((found.entries, found.files, found.last, found.faults), (5, 1, 5, vec![]));
    assert!(place.dir.path().join("audit.head").exists());
}

#[test]
fn a_change_a_deletion_another_order_and_a_cut_are_each_told() {
    let edited = faults(|lines| lines[2] = lines[2].replace("\"b2\"", "\"b9\""));
    assert!(matches!(edited[..], [Fault::Edited { line: 3, .. }]), "{edited:?}");
    let deleted = faults(|lines| drop(lines.remove(2)));
    assert!(matches!(deleted[..], [Fault::Deleted { line: 3, from: 3, to: 3, .. }]), "{deleted:?}");
    let first = faults(|lines| drop(lines.remove(0)));
    assert!(matches!(first[..], [Fault::Deleted { line: 1, from: 1, to: 1, .. }]), "{first:?}");
    let swapped = faults(|lines| lines.swap(1, 2));
    assert!(swapped.iter().any(|fault| matches!(fault, Fault::Reordered { seq: 2, .. })), "{swapped:?}");
    let doubled = faults(|lines| lines.push(lines[4].clone()));
    assert!(matches!(doubled[..], [Fault::Reordered { line: 6, seq: 5, .. }]), "{doubled:?}");
    let cut = faults(|lines| lines.truncate(3));
    assert_eq!(cut, [Fault::Truncated { last: 3, written: 5 }]);
    let gone = faults(Vec::clear);
    assert_eq!(gone, [Fault::Truncated { last: 0, written: 5 }]);
    let foreign = faults(|lines| lines.insert(2, "{\"seq\":3}".to_owned()));
    assert!(matches!(foreign[0], Fault::Edited { line: 3, .. }), "{foreign:?}");
}

#[test]
fn a_log_that_is_gone_or_lost_its_key_or_its_head_is_told_and_not_gone_on_with() {
    let refused = |log: &Log| {
        let error = log.append(0, &Actor::worker(), &Event::new(Action::Remove, json!({}))).unwrap_err();
        assert_eq!(error.code, Code::AuditFailed);
        error.message
    };
    let gone = place(1 << 20);
    fill(&gone.log, 3);
    std::fs::remove_file(current(&gone.log)).unwrap();
    assert_eq!(gone.log.verify().unwrap().faults, [Fault::Truncated { last: 0, written: 3 }]);
    assert!(refused(&gone.log).contains("its end is missing"));
    std::fs::remove_dir_all(gone.log.dir()).unwrap();
    assert_eq!(gone.log.verify().unwrap().faults, [Fault::KeyMissing]);
    assert!(refused(&gone.log).contains("key"));

    let keyless = place(1 << 20);
    fill(&keyless.log, 3);
    std::fs::remove_file(keyless.log.dir().join("key")).unwrap();
    assert_eq!(keyless.log.verify().unwrap().faults, [Fault::KeyMissing]);
    refused(&keyless.log);

    let headless = place(1 << 20);
    fill(&headless.log, 3);
    std::fs::remove_file(headless.log.anchor_path()).unwrap();
    assert_eq!(headless.log.verify().unwrap().faults, [Fault::AnchorMissing]);
    refused(&headless.log);

    let forged = place(1 << 20);
    fill(&forged.log, 3);
    let head = std::fs::read_to_string(forged.log.anchor_path()).unwrap();
    std::fs::write(forged.log.anchor_path(), head.replace("\"seq\":3", "\"seq\":2")).unwrap();
    assert_eq!(forged.log.verify().unwrap().faults, [Fault::AnchorChanged]);
    refused(&forged.log);

    let edited = place(1 << 20);
    fill(&edited.log, 3);
    let path = current(&edited.log);
    let mut all = lines(&path);
    all[2] = all[2].replace("b2", "bx");
    put(&path, &all);
    assert!(refused(&edited.log).contains("was changed"));
}

#[test]
fn the_chain_is_carried_over_from_file_to_file() {
    let place = place(4096);
    fill(&place.log, 60);
    let found = place.log.verify().unwrap();
    assert!(found.files > 3, "{found:?}");
    assert_eq!((found.entries, found.last, found.is_intact()), (60, 60, true));
    // A whole file that is missing is a gap.
    let mut rotated: Vec<PathBuf> = std::fs::read_dir(place.log.dir())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("audit.0"))
        .collect();
    rotated.sort();
    std::fs::rename(&rotated[1], place.dir.path().join("aside")).unwrap();
    let faults = place.log.verify().unwrap().faults;
    assert!(matches!(faults[..], [Fault::Deleted { line: 1, .. }]), "{faults:?}");
    std::fs::rename(place.dir.path().join("aside"), &rotated[1]).unwrap();
    // The process was killed right after it had renamed the file.
    let seq = place.log.verify().unwrap().last;
    std::fs::rename(current(&place.log), place.log.dir().join(format!("audit.{seq:020}.jsonl"))).unwrap();
    fill(&place.log, 1);
    assert!(place.log.verify().unwrap().is_intact());
}

#[test]
fn a_writer_that_was_killed_leaves_a_log_that_goes_on() {
    let place = place(1 << 20);
    fill(&place.log, 2);
    let head = std::fs::read(place.log.anchor_path()).unwrap();
    // In the middle of a line.
    let path = current(&place.log);
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"seq\":3,\"ti")).unwrap();
    assert!(place.log.verify().unwrap().is_intact(), "nobody was told that the line is there");
    fill(&place.log, 1);
    assert_eq!(lines(&path).len(), 3);
    assert!(place.log.verify().unwrap().is_intact());
    // Between the line and the head.
    std::fs::write(place.log.anchor_path(), head).unwrap();
    assert!(place.log.verify().unwrap().is_intact());
    fill(&place.log, 1);
    let found = place.log.verify().unwrap();
    assert_eq!((found.last, found.is_intact()), (4, true));
    // In the middle of the very first line of a file.
    std::fs::rename(&path, place.log.dir().join(format!("audit.{:020}.jsonl", 4))).unwrap();
    std::fs::write(&path, "{\"seq").unwrap();
    fill(&place.log, 1);
    assert_eq!(place.log.verify().unwrap().last, 5);
    assert!(place.log.verify().unwrap().is_intact());
}

/// `count` entries at once.
fn fill_together(log: &Log, count: u64) -> worktree::model::Result<u64> {
    let told = |number| {
        let event = Event::new(Action::Remove, json!({"branch": format!("b{number}")}));
        Told { time: 0, actor: Actor::worker(), event }
    };
    log.append_all(&(0..count).map(told).collect::<Vec<_>>())
}

#[test]
fn what_is_told_at_a_time_is_one_chain_with_the_rest() {
    let place = place(4096);
    // The first by itself: a head that is missing behind it is noticed.
    assert_eq!(fill_together(&place.log, 3).unwrap(), 3);
    assert_eq!(fill_together(&place.log, 0).unwrap(), 3);
    fill(&place.log, 1);
    assert_eq!(fill_together(&place.log, 200).unwrap(), 204);
    let found = place.log.verify().unwrap();
    assert_eq!((found.entries, found.last, found.is_intact()), (204, 204, true));
    let longest = std::fs::read_dir(place.log.dir()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).max();
    assert!(longest.unwrap() <= 4096, "{longest:?}");
}

#[test]
fn a_writer_that_was_killed_behind_many_entries_leaves_a_log_that_goes_on() {
    let place = place(1 << 20);
    fill(&place.log, 2);
    let (path, head) = (current(&place.log), std::fs::read(place.log.anchor_path()).unwrap());
    fill_together(&place.log, 5).unwrap();
    let whole = lines(&path);
    let back = || std::fs::write(place.log.anchor_path(), &head).unwrap();
    // Between the lines and the head, with a line that was cut off.
    back();
    std::fs::write(&path, format!("{}\n{{\"seq\":8", whole.join("\n"))).unwrap();
    assert!(place.log.verify().unwrap().is_intact());
    fill(&place.log, 1);
    let found = place.log.verify().unwrap();
    assert_eq!((found.last, found.is_intact()), (8, true));
    // What lies behind the head must be whole.
    for (change, what) in [("b2", "bx"), ("\"seq\":5", "\"seq\":9")] {
        back();
        put(&path, &whole.iter().map(|line| line.replace(change, what)).collect::<Vec<_>>());
        assert!(place.log.append(0, &Actor::worker(), &Event::new(Action::Remove, json!({}))).is_err(), "{what}");
    }
    back();
    put(&path, &[&whole[..3], &whole[4..]].concat());
    assert!(place.log.append(0, &Actor::worker(), &Event::new(Action::Remove, json!({}))).is_err());
    // No write is as long as this.
    put(&path, &whole);
    fill(&place.log, 1);
    let head = std::fs::read(place.log.anchor_path()).unwrap();
    fill_together(&place.log, 64).unwrap();
    fill(&place.log, 1);
    std::fs::write(place.log.anchor_path(), head).unwrap();
    assert_eq!(place.log.verify().unwrap().faults, [Fault::AnchorChanged]);
    assert!(fill_together(&place.log, 1).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_tell_at_the_same_time_share_a_write() {
    let (first, second) = (place(1 << 20), place(1 << 20));
    let together = std::sync::Arc::new(Together::default());
    // Two logs, as right after the configuration has changed; the second is in its own way.
    std::fs::write(second.dir.path().join("audit"), "in the way").unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100_usize {
        let (together, log) = (together.clone(), [&first.log, &second.log][usize::from(number % 10 == 0)].clone());
        let event = Event::new(Action::Remove, json!({"branch": format!("b{number}")}));
        let told = Told { time: 0, actor: Actor::worker(), event };
        tasks.spawn(async move { (number, together.append(log, told).await) });
    }
    // Somebody who does not wait for the end.
    let event = Event::new(Action::Remove, json!({"branch": "gone"}));
    let gone = together.append(first.log.clone(), Told { time: 0, actor: Actor::worker(), event });
    drop(tokio::time::timeout(std::time::Duration::from_millis(1), gone).await);
    while let Some(told) = tasks.join_next().await {
        let (number, told) = told.unwrap();
        assert_eq!(told.is_err(), number % 10 == 0, "{number}: {told:?}");
        let mention = Filter { mentions: Some(format!("\"b{number}\"")), ..Filter::default() };
        assert_eq!(
            first.log.query(&mention).unwrap().len(),
            usize::from(told.is_ok()),
            "it is there when that is said"
        );
    }
    assert!(first.log.verify().unwrap().is_intact());
}

#[test]
fn several_writers_make_one_chain() {
    let place = place(1 << 14);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let log = place.log.clone();
            scope.spawn(move || fill(&log, 25));
        }
    });
    let found = place.log.verify().unwrap();
    assert_eq!((found.entries, found.last, found.is_intact()), (150, 150, true));
}

#[test]
fn a_query_filters_and_a_tail_is_the_end_of_it() {
    let place = place(4096);
    fill(&place.log, 30);
    let rehearsal = Event { dry_run: true, ..Event::new(Action::PruneRehearsal, json!({"would_prune": ["x"]})) };
    place.log.append(99, &Actor::command_line("ann"), &rehearsal).unwrap();
    let count = |filter: Filter| place.log.query(&filter).unwrap().len();
    assert_eq!(count(Filter::default()), 31);
    assert_eq!(count(Filter { since: Some(10), until: Some(19), ..Filter::default() }), 10);
    assert_eq!(count(Filter { after_seq: Some(29), ..Filter::default() }), 2);
    assert_eq!(count(Filter { actions: vec![Action::PruneRehearsal, Action::Restore], ..Filter::default() }), 1);
    assert_eq!(count(Filter { worktree_id: Some("wt_000000000007".to_owned()), ..Filter::default() }), 1);
    assert_eq!(count(Filter { repo_key: Some("/other/.git".to_owned()), ..Filter::default() }), 0);
    assert_eq!(count(Filter { actor: Some("ada".to_owned()), ..Filter::default() }), 30);
    assert_eq!(count(Filter { actor: Some("ann".to_owned()), ..Filter::default() }), 1);
    assert_eq!(count(Filter { dry_run: Some(true), ..Filter::default() }), 1);
    assert_eq!(count(Filter { mentions: Some("b17".to_owned()), ..Filter::default() }), 1);
    let tail = place.log.tail(&Filter { dry_run: Some(false), ..Filter::default() }, 3).unwrap();
    assert_eq!(tail.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [28, 29, 30]);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "in the way").unwrap();
    let log = Log::new(dir.path().join("file/audit"), 1 << 20);
    let error = log.append(0, &Actor::worker(), &Event::new(Action::Remove, json!({}))).unwrap_err();
    assert_eq!(error.code, Code::AuditFailed);
    assert!(error.message.contains("nothing was destroyed"), "{error}");
}
