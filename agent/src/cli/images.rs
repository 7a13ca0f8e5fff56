//! `imgwarden images`: every image with its holds, and why a hold does not hold.

use std::collections::BTreeMap;

use anyhow::Context as _;

use super::{Exit, Global, config::word_of, output};
use crate::{
    config::{Config, Hold},
    serve::{Client, HoldState, ImageStatus},
};

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Lists every image of the guarded namespace, and every protected one that is absent, with the rule \
                  that protects it and the state of each hold:\n  yes          it holds\n  no           it is wanted \
                  and not taken\n  ineffective  it is taken and does nothing here\n  off          the rule does not \
                  want it\n  absent       there is nothing to hold",
    after_help = "Examples:\n  imgwarden images --protected\n  imgwarden images --json | jq '.[] | select(.present | not)'"
)]
pub struct Args {
    /// Only those that a rule protects.
    #[arg(long)]
    protected: bool,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let config = Config::load(global.config.as_deref())?;
    let mut images = Client::new(config.control.socket).images().await.context("images")?;
    if args.protected {
        images.retain(|image| image.rule.is_some());
    }
    if global.json {
        output::json(&images)?;
    } else {
        output::text(&describe(&images))?;
    }
    Ok(Exit::Fine)
}

fn describe(images: &[ImageStatus]) -> String {
    if images.is_empty() {
        return "no images\n".to_owned();
    }
    let header = ["IMAGE", "SIZE", "RULE", "PRIORITY", "PIN", "LEASE", "SHADOW", "LINK", "ARCHIVE"];
    let mut text = output::table(header, images.iter().map(row));
    let mut reasons: BTreeMap<(Hold, &str, &str), usize> = BTreeMap::new();
    for held in images.iter().flat_map(|image| &image.holds) {
        if let (HoldState::No | HoldState::Ineffective, Some(why)) = (held.state, &held.why) {
            let state = if held.state == HoldState::No { "no" } else { "ineffective" };
            *reasons.entry((held.hold, state, why)).or_default() += 1;
        }
    }
    for ((hold, state, why), count) in reasons {
        let plural = if count == 1 { "image" } else { "images" };
        text += &format!("\n{hold} {state}: {why} ({count} {plural})");
    }
    text
}

fn row(image: &ImageStatus) -> [String; 9] {
    let state = |hold| {
        let found = image.holds.iter().find(|status| status.hold == hold);
        output::word(found.map(|status| status.state))
    };
    let name = output::display_name(&image.names, image.id.as_deref());
    let [pin, lease, shadow, link, archive] = Hold::ALL.map(state);
    let size = if image.present { output::size(image.bytes) } else { "absent".to_owned() };
    let priority = output::word(image.priority.as_ref().map(word_of));
    [name, size, output::word(image.rule.as_deref()), priority, pin, lease, shadow, link, archive]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Mode, Priority},
        serve::HoldStatus,
    };

    #[test]
    fn images_are_listed_with_their_holds_and_reasons() {
        let held = |hold, state, why: Option<&str>| HoldStatus { hold, state, why: why.map(Into::into) };
        let pause = ImageStatus {
            id: Some(format!("sha256:{}", "0a".repeat(32))),
            names: vec!["docker.io/rancher/pause@sha256:00".into(), "docker.io/rancher/pause:3.6".into()],
            rule: Some("sandbox".into()),
            priority: Some(Priority::Critical),
            mode: Some(Mode::Protect),
            present: true,
            bytes: Some(301_234),
            holds: vec![
                held(Hold::Pin, HoldState::Ineffective, Some("containerd too old")),
                held(Hold::Lease, HoldState::Yes, None),
                held(Hold::Shadow, HoldState::Yes, None),
                held(Hold::Link, HoldState::Off, None),
                held(Hold::Archive, HoldState::Absent, None),
            ],
            archive: None,
        };
        let other = ImageStatus {
            id: None,
            names: vec!["docker.io/library/gone:1".into()],
            rule: None,
            priority: None,
            mode: None,
            present: false,
            bytes: None,
            holds: vec![],
            archive: None,
        };
        let text = describe(&[pause, other]);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "IMAGE                        SIZE        RULE     PRIORITY  PIN          LEASE  SHADOW  LINK  ARCHIVE",
                "docker.io/rancher/pause:3.6  294.17 KiB  sandbox  critical  ineffective  yes    yes     off   absent",
                "docker.io/library/gone:1     absent      -        -         -            -      -       -     -",
                "",
                "pin ineffective: containerd too old (1 image)",
            ]
        );
        assert_eq!(describe(&[]), "no images\n");
    }
}
