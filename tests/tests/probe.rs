//! The probe against the running kernel: what is done on this machine, and what it tells of it.

use imgwarden::probe::{Options, Probe};

#[tokio::test]
async fn every_hook_attaches() {
    let probe = Probe::load(&Options::default()).unwrap();
    println!("{:#?}", probe.report());
    assert!(probe.report().hooks.iter().all(|hook| hook.attached()), "{:#?}", probe.report());
}
