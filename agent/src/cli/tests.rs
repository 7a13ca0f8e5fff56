//! What is typed and what comes back.

use clap::{CommandFactory as _, error::ErrorKind};

use super::*;

fn parse(words: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("imgwarden").chain(words.split_whitespace()))
}

#[test]
fn the_commands_are_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_of_the_contract_is_there_and_explained() {
    for words in ["run", "status", "images", "plan", "why", "events", "restore", "archive", "probe", "config"]
    {
        let help = parse(&format!("{words} --help")).expect_err(words);
        assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{words}");
        let text = help.to_string();
        assert!(text.contains("--config <FILE>") && text.contains("--json"), "{words}: {text}");
    }
    for (words, explained) in [
        ("status", "what of the kernel it watches"),
        ("images", "ineffective  it is taken and does nothing here"),
        ("plan", "tried before the agent is given it"),
        ("restore", "verified by hash"),
        ("config", "Neither needs a running agent"),
    ] {
        let text = parse(&format!("{words} --help")).expect_err(words).to_string();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&explained) && text.contains("Example"), "{words}: {text}");
    }
}

#[test]
fn what_is_shared_stands_before_or_after_the_command() {
    for words in ["--config a.toml --json status", "status --config a.toml --json"] {
        let cli = parse(words).unwrap();
        assert_eq!((cli.global.config, cli.global.json), (Some("a.toml".into()), true), "{words}");
    }
    let cli = parse("run --log debug --log-format json").unwrap();
    assert_eq!((cli.global.log.as_deref(), cli.global.log_format), (Some("debug"), LogFormat::Json));
}

#[test]
fn a_usage_error_is_exit_code_2() {
    for words in ["", "frobnicate", "restore", "config", "status --frob", "run --log-format xml"] {
        assert_eq!(parse(words).expect_err(words).exit_code(), 2, "{words}");
    }
    assert_eq!(parse("--version").expect_err("version").exit_code(), 0);
}

#[test]
fn an_error_decides_the_exit_code_wherever_it_stands_in_the_chain() {
    let missing = NotPermitted { what: "loading the probes".into(), capability: "CAP_BPF".into() };
    let missing = anyhow::Error::new(missing).context("run");
    assert_eq!(Exit::of(&missing), Exit::NotPermitted);
    assert_eq!(
        complaint(&missing).as_deref(),
        Some("imgwarden: run: loading the probes: not permitted: CAP_BPF is missing")
    );
    let refused = ClientError::NotPermitted { socket: "/s".into() };
    assert_eq!(Exit::of(&anyhow::Error::new(refused).context("status")), Exit::NotPermitted);
    let config = crate::config::Config::load(Some("/nowhere/config.toml".as_ref())).unwrap_err();
    let config = anyhow::Error::new(config);
    assert_eq!(Exit::of(&config), Exit::Usage);
    assert_eq!(
        complaint(&config).as_deref(),
        Some("imgwarden: /nowhere/config.toml: can't be read: No such file or directory (os error 2)")
    );
    let filter = anyhow::Error::new(log_filter("imgwarden=loud").unwrap_err());
    assert_eq!(Exit::of(&filter), Exit::Usage);
    assert_eq!(Exit::of(&anyhow::anyhow!("anything")), Exit::Failed);
    assert_eq!(complaint(&anyhow::anyhow!("two\n  lines")).as_deref(), Some("imgwarden: two lines"));
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let closed = anyhow::Error::new(output::Closed).context("events");
    assert_eq!((Exit::of(&closed), complaint(&closed)), (Exit::Fine, None));
}

#[tokio::test]
async fn without_an_agent_one_line_says_how_to_start_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let socket = dir.path().join("none.sock");
    std::fs::write(&file, format!("[control]\nsocket = {socket:?}\n")).unwrap();
    for words in ["status", "images", "plan", "restore nginx"] {
        let error = parse(&format!("{words} --config {}", file.display())).unwrap().run().await.unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Failed);
        assert_eq!(
            complaint(&error).unwrap(),
            format!(
                "imgwarden: {words}: no agent is running (nobody listens on {}); start it with `imgwarden run` or \
                 `systemctl start imgwarden`",
                socket.display()
            )
        );
    }
}
