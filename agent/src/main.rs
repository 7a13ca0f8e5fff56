//! The `imgwarden` command: parses, starts diagnostics and the runtime, dispatches, and turns the outcome into an exit
//! code and at most one line on stderr.

use std::{io, process::ExitCode};

use clap::Parser as _;
use imgwarden::cli::{self, Cli, Command, Exit, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = start_diagnostics(&cli).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(cli.run())
    });
    let exit = match outcome {
        Ok(exit) => exit,
        Err(error) => {
            if let Some(complaint) = cli::complaint(&error) {
                eprintln!("{complaint}");
            }
            Exit::of(&error)
        }
    };
    ExitCode::from(exit as u8)
}

/// Diagnostics go to stderr, so that events and results can be piped.
fn start_diagnostics(cli: &Cli) -> anyhow::Result<()> {
    let usual = if matches!(cli.command, Command::Run(_)) { "info" } else { "warn" };
    let written = cli.global.log.clone().or_else(|| std::env::var(EnvFilter::DEFAULT_ENV).ok());
    let filter = cli::log_filter(written.as_deref().filter(|filter| !filter.is_empty()).unwrap_or(usual))?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match cli.global.log_format {
        LogFormat::Text => {
            let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
            subscriber.with_ansi(is_terminal).init();
        }
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}
