//! Configs as people write them, and nodes as distributions make them.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use super::{file::ConfigFile, keys::Key, *};

/// A root directory of a node, with a config.
struct Node {
    dir: tempfile::TempDir,
    sockets: Vec<UnixListener>,
}

impl Node {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), sockets: Vec::new() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
        self
    }

    fn socket(&mut self, path: &str) -> &mut Self {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        self.sockets.push(UnixListener::bind(self.path(path)).unwrap());
        self
    }

    fn directory(&mut self, path: &str) -> &mut Self {
        fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    /// A process of this node, or of another root.
    fn process(&mut self, pid: u32, argv: &[&str], root: &Path) -> &mut Self {
        self.write(&format!("/proc/{pid}/cmdline"), argv.join("\0") + "\0");
        symlink(root, self.path(&format!("/proc/{pid}/root"))).unwrap();
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load_under(None, self.dir.path())
    }

    /// What a person is told, with the node's own directory left out.
    fn refusal(&self) -> String {
        self.load().unwrap_err().to_string().replace(self.dir.path().to_str().unwrap(), "")
    }
}

fn refusal(text: &str) -> String {
    Node::new().write("/etc/imgwarden/config.toml", text).refusal()
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_what_was_meant() {
    for (text, line) in [
        ("[probe]\nbakend = \"auto\"", r#"2: unknown key "bakend" in [probe]; did you mean "backend"?"#),
        ("\n\nMode = \"observe\"", r#"3: unknown key "Mode"; did you mean "mode"?"#),
        ("backend = \"auto\"", r#"1: unknown key "backend"; it belongs in [probe]"#),
        (
            "[probe]\nstate_dir = \"/x\"",
            r#"2: unknown key "state_dir" in [probe]; it belongs above the first [table]"#,
        ),
        ("[control]\nfoo = 1", r#"2: unknown key "foo" in [control]; known here: socket"#),
        ("[[protect]]\nname = [\"a\"]", r#"2: unknown key "name" in [protect]; did you mean "names"?"#),
        ("[sinks]\ntype = \"stdout\"", r#"1: unknown key "sinks"; did you mean "sink"?"#),
        (
            "mode = \"observ\"",
            r#"1: mode: unknown variant `observ`, expected `protect` or `observe`; did you mean "observe"?"#,
        ),
        ("mode = 5", "1: mode: expected a string"),
        (
            "[holds]\nretire_after = \"7 days\"",
            r#"2: holds.retire_after: "7 days" is no duration: write a number and ms, s, m, h, d or w, like "90s", "1h30m" or "7d""#,
        ),
        (
            "[probe]\n\nring = \"3MiB\"",
            r#"3: probe.ring: a ring of 3MiB is impossible: write a power of two from 64KiB to 1GiB, like "4MiB""#,
        ),
        (
            "[http]\nlisten = \"localhost\"",
            r#"2: http.listen: invalid socket address syntax, or "" to turn it off"#,
        ),
        (
            "[[protect]]\nnames = [\"a\"]\n[[protect]]\nnames = [\n  \"b\",\n  \"Nginx\",\n]",
            r#"4: protect[1].names: "Nginx" is no name pattern: "Nginx" is no image name: the repository must be lower case"#,
        ),
        (
            "[[protect]]\nnames = [\"a\"]\nholds = [\"pin\", \"leash\"]",
            r#"3: protect[0].holds: unknown variant `leash`, expected one of `pin`, `lease`, `shadow`, `link`, `archive`; did you mean "lease"?"#,
        ),
        ("state_dir = \"var\"", "1: state_dir: var is not an absolute path"),
        (
            "[[protect]]\npriority = \"high\"",
            "1: protect[0]: a rule needs `names` or `used`: it would mean every image",
        ),
        (
            "[[protect]]\nnames = [\"a\"]\nholds = []",
            "3: protect[0].holds: a rule without holds protects nothing: leave `holds` out, or write mode = \"observe\"",
        ),
        (
            "[containerd]\nnamespace = \"imgwarden\"",
            r#"2: containerd.namespace: "imgwarden" is where imgwarden keeps its own records: name the namespace whose images are guarded"#,
        ),
        (
            "[journal]\nmax_size = \"10MiB\"",
            "journal.max_segment: 10MiB is more than journal.max_size, 10MiB: it must hold at least two segments",
        ),
        ("[scrub]\nstat = \"10ms\"", "2: scrub.stat: 10ms is too short: at least 1s"),
        ("[journal\n", "1: unclosed table, expected `]`"),
        ("mode = \"observe\"\nmode = \"protect\"", "2: duplicate key"),
    ] {
        let told = refusal(text);
        let file = format!("/etc/imgwarden/config.toml:{line}");
        let default = format!("default: {line}");
        assert!(told == file || told == default, "\n{text}\n told: {told}\n want: {file}");
    }
}

#[test]
fn a_file_that_is_named_must_be_there_and_the_default_need_not() {
    let node = Node::new();
    assert_eq!(node.load().unwrap().mode, Mode::Protect);
    let named = node.path("/nowhere.toml");
    let error = Config::load_under(Some(&named), node.dir.path()).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }), "{error}");
    assert_eq!(
        node.write("/etc/imgwarden/config.toml", [0xff, 0xfe]).refusal(),
        "/etc/imgwarden/config.toml: is not UTF-8"
    );
    let large = " ".repeat((1 << 20) + 1);
    assert_eq!(
        node.write("/etc/imgwarden/config.toml", large).refusal(),
        "/etc/imgwarden/config.toml: too large for a config: at most 1048576 bytes are read"
    );
}

#[test]
fn drop_ins_are_read_in_order_later_wins_and_lists_of_tables_add_up() {
    let node = Node::new();
    node.write(
        "/etc/imgwarden/config.toml",
        "mode = \"observe\"\n[[protect]]\nnames = [\"a\"]\n[journal]\nmax_size = \"1GiB\"",
    );
    node.write(
        "/etc/imgwarden/config.toml.d/20-b.toml",
        "[[protect]]\nnames = [\"c\"]\n[journal]\nfsync = \"always\"",
    );
    node.write(
        "/etc/imgwarden/config.toml.d/10-a.toml",
        "mode = \"protect\"\n\n[[protect]]\nnames = [\"b\"]",
    );
    node.write("/etc/imgwarden/config.toml.d/README", "not read");
    let config = node.load().unwrap();
    let names: Vec<_> = config.protect.iter().flat_map(|rule| &rule.names).map(Pattern::as_str).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(config.mode, Mode::Protect);
    assert_eq!((config.journal.max_size, config.journal.fsync), (Size(1 << 30), Fsync::Always));
    let source = |key: &str| config.sources[key].to_string().replace(node.dir.path().to_str().unwrap(), "");
    assert_eq!(source("mode"), "/etc/imgwarden/config.toml.d/10-a.toml:1");
    assert_eq!(source("protect[1].names"), "/etc/imgwarden/config.toml.d/10-a.toml:4");
    assert_eq!(source("protect[2].names"), "/etc/imgwarden/config.toml.d/20-b.toml:2");
    assert_eq!(source("journal.max_size"), "/etc/imgwarden/config.toml:5");

    node.write("/etc/imgwarden/config.toml.d/30-c.toml", "[[protect]]\npriority = \"high\"");
    assert_eq!(
        node.refusal(),
        "/etc/imgwarden/config.toml.d/30-c.toml:1: protect[3]: a rule needs `names` or `used`: it would mean every image"
    );
}

#[test]
fn every_value_in_force_is_shown_with_its_source_and_changes_its_hash() {
    let node = Node::new();
    let before = node.load().unwrap();
    node.write("/etc/imgwarden/config.toml", "[probe]\nring = \"8MiB\"\n[[protect]]\nnames = [\"a\"]");
    let after = node.load().unwrap();
    assert_ne!(before.hash(), after.hash());
    assert_eq!(after.hash(), node.load().unwrap().hash());
    assert_eq!(
        before.changed(&after),
        [
            "probe.ring",
            "protect[0].except",
            "protect[0].holds",
            "protect[0].mode",
            "protect[0].names",
            "protect[0].priority"
        ]
    );
    let entries = after.entries();
    let entry = |key: &str| entries.iter().find(|entry| entry.key == key).unwrap();
    assert_eq!(entry("probe.ring").value, "8MiB");
    assert!(matches!(entry("probe.ring").source, Source::File { line: 2, .. }));
    assert_eq!(entry("probe.backend").source, Source::Default);
    assert!(matches!(entry("node").source, Source::Found(_)));
    assert_eq!(entry("disk.resume").value, "5%");
}

#[test]
fn the_example_is_a_config_and_says_the_defaults() {
    let text = include_str!("../../../docs/config.example.toml");
    let config: Config = toml::from_str(text).unwrap();
    let defaults = Config::default();
    assert_eq!(config.protect.len(), 2);
    // All it writes beside rules, sinks and what is found are the defaults.
    for (of, default) in config.entries().iter().filter_map(|entry| {
        let defaults = defaults.entries();
        Some((entry.clone(), defaults.into_iter().find(|default| default.key == entry.key)?))
    }) {
        let found =
            ["containerd.address", "containerd.root", "containerd.state", "archives.dirs", "holds.link_dir"];
        if !found.contains(&of.key.as_str()) {
            assert_eq!(of.value, default.value, "{}", of.key);
        }
    }
    let round: Config = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
    assert_eq!(round, config);
}

#[test]
fn containerd_is_found_where_each_distribution_has_it() {
    const K3S: &str = "/run/k3s/containerd/containerd.sock";
    for (socket, root, images) in [
        (K3S, "/var/lib/rancher/k3s/agent/containerd", Some("/var/lib/rancher/k3s/agent/images")),
        (K3S, "/var/lib/rancher/rke2/agent/containerd", Some("/var/lib/rancher/rke2/agent/images")),
        ("/run/k0s/containerd.sock", "/var/lib/k0s/containerd", Some("/var/lib/k0s/images")),
        (
            "/var/snap/microk8s/common/run/containerd.sock",
            "/var/snap/microk8s/common/var/lib/containerd",
            Some("/var/snap/microk8s/common/etc/sideload"),
        ),
        ("/run/containerd/containerd.sock", "/var/lib/containerd", None),
    ] {
        let mut node = Node::new();
        // A distribution's own containerd beside it is not the one that pods run on.
        node.socket(socket).directory(root).directory("/var/lib/containerd");
        let config = node.load().unwrap();
        let Containerd { address, root: found, state: _, namespace: _ } = &config.containerd;
        assert_eq!((address.as_path(), found.as_path()), (Path::new(socket), Path::new(root)));
        assert_eq!(config.archives.dirs, images.map(PathBuf::from).into_iter().collect::<Vec<_>>());
        let Source::Found(by) = &config.sources["containerd.root"] else { panic!("{:?}", config.sources) };
        assert!(by.ends_with(&format!("{socket} is there")), "{by}");
    }
}

#[test]
fn a_running_containerd_says_where_its_moved_root_is() {
    let mut node = Node::new();
    let here = node.dir.path().to_owned();
    let flags = |data: &str| {
        format!(
            "containerd -c {data}/agent/etc/containerd/config.toml -a /run/k3s/containerd/containerd.sock --state \
             /run/k3s/containerd --root {data}/agent/containerd"
        )
    };
    let k3s = flags("/data/k3s");
    let inner = flags("/inner");
    node.process(7, &inner.split(' ').collect::<Vec<_>>(), Path::new("/"));
    node.process(8, &["/usr/bin/containerd"], &here);
    node.process(9, &k3s.split(' ').collect::<Vec<_>>(), &here);
    node.process(10, &["/usr/bin/containerd-shim-runc-v2", "-address", "/x"], &here);
    let config = node.load().unwrap();
    assert_eq!(config.containerd.root, Path::new("/data/k3s/agent/containerd"));
    assert_eq!(config.archives.dirs, [Path::new("/data/k3s/agent/images")]);
    assert_eq!(config.holds.link_dir, Path::new("/data/k3s/agent/imgwarden"));
    assert_eq!(config.sources["containerd.root"].to_string(), "found: k3s, arguments of process 9");
}

#[test]
fn a_named_socket_decides_whose_root_is_meant_and_its_config_file_is_read() {
    let mut node = Node::new();
    let here = node.dir.path().to_owned();
    node.write(
        "/opt/c.toml",
        "version = 2\nroot = \"/data/c\"\nstate = \"/run/c\"\n[grpc]\naddress = \"/run/c/c.sock\"",
    );
    node.process(5, &["/usr/bin/containerd", "--config=/opt/c.toml"], &here);
    node.socket("/run/containerd/containerd.sock").directory("/var/lib/containerd");
    assert_eq!(node.load().unwrap().containerd.root, Path::new("/var/lib/containerd"));
    node.write("/etc/imgwarden/config.toml", "[containerd]\naddress = \"/run/c/c.sock\"");
    let config = node.load().unwrap();
    assert_eq!(config.containerd.root, Path::new("/data/c"));
    assert_eq!(config.containerd.state, Path::new("/run/c"));
    assert!(matches!(config.sources["containerd.address"], Source::File { line: 2, .. }));
    // Nothing is known of this one: its root is not guessed.
    node.write("/etc/imgwarden/config.toml", "[containerd]\naddress = \"/run/other.sock\"");
    assert_eq!(node.load().unwrap().containerd.root, Path::new(""));
}

#[test]
fn a_node_without_containerd_waits_for_the_plain_one() {
    let config = Node::new().load().unwrap();
    assert_eq!(config.containerd.address, Path::new("/run/containerd/containerd.sock"));
    assert_eq!(config.containerd.root, Path::new("/var/lib/containerd"));
    // Beside containerd's root lies state_dir.
    assert_eq!(config.holds.link_dir, Path::new("/var/lib/imgwarden/links"));
}

/// Every key of the type is in the reference, with its meaning and its default.
#[test]
fn the_reference_is_that_of_the_type() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.md");
    let written = fs::read_to_string(path).unwrap();
    let expected = reference::markdown(Key::top());
    assert!(
        written == expected,
        "docs/config.md is not what `imgwarden config reference` prints:\n{expected}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_a_config_or_refused(text in "\\PC{0,200}") {
        let _ = ConfigFile::parse(Path::new("config.toml"), &text);
    }

    #[test]
    fn any_lines_of_known_words_are_a_config_or_refused(
        lines in proptest::collection::vec(
            "(\\[\\[?(protect|probe|containerd|sink|http|disk)\\]?\\])|((names|used|ring|mode|type|listen|floor|protect) = (\"[a-z0-9*:/%]{0,8}\"|[0-9]{1,3}|\\[\"[a-z*]{1,4}\"\\]|\\{mode = 1\\}|true))",
            0..8,
        )
    ) {
        let _ = ConfigFile::parse(Path::new("config.toml"), &lines.join("\n"));
    }
}
