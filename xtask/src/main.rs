//! Everything that a person types while working on imgwarden: `cargo xtask COMMAND`.
//!
//! One file a command. Each says in one line what it does and stops at the first thing that fails, named.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

mod build;
mod command;
mod demo;
mod ebpf;
mod fuzz;
mod leftover;
mod lint;
mod lock;
mod paths;
mod setup;
mod test;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "What a person types while working on imgwarden",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make this machine ready: compilers, LLVM, bpf-linker, containerd and what else the tests need
    Setup,
    /// Build the eBPF programs and one static target/release/imgwarden
    Build(build::Args),
    /// Put the eBPF programs into this kernel, print what attached and what the verifier said, take them out again
    Load,
    /// Build imgwarden (unoptimised) and run it with these arguments
    Run {
        /// What imgwarden is started with
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check the formatting and run clippy, warnings denied
    Lint,
    /// Run all tests: unit, property, and end to end against a real containerd (as root)
    Test(test::Args),
    /// Watch imgwarden do its whole job against a real containerd (as root)
    Demo,
    /// Fuzz the parsers of what others send
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let Some(command) = Cli::parse().command else {
        println!("cargo xtask COMMAND [--help]\n");
        for command in Cli::command().get_subcommands() {
            println!("  {:6} {}", command.get_name(), command.get_about().unwrap_or_default());
        }
        return ExitCode::SUCCESS;
    };
    let done = match command {
        Command::Setup => setup::run(false).map(|()| ExitCode::SUCCESS),
        Command::Build(arguments) => build::run_build(&arguments),
        Command::Load => build::load(),
        Command::Run { arguments } => build::run_agent(&arguments),
        Command::Lint => lint::run_lint(),
        Command::Test(arguments) => test::run_tests(&arguments),
        Command::Demo => demo::run_demo(),
        Command::Fuzz(arguments) => fuzz::run_fuzz(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
