//! `imgwarden plan`: what a config would hold and let go. Touches nothing.

use anyhow::Context as _;

use super::{Exit, Global, config::word_of, output};
use crate::{
    config::Config,
    serve::{Client, Plan, PlanAction, PlannedImage},
};

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Asks the running agent what a config would hold and let go on this node, and touches nothing. With \
                  --config FILE the file is checked and tried before the agent is given it; without, the plan is that \
                  of the config in force.",
    after_help = "Example:\n  imgwarden plan --config new.toml"
)]
pub struct Args {
    /// Also those that stay as they are.
    #[arg(long)]
    all: bool,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let config = Config::load(global.config.as_deref())?;
    let client = Client::new(&config.control.socket);
    let tried = global.config.is_some().then_some(&config);
    let mut plan = client.plan(tried).await.context("plan")?;
    if !args.all {
        plan.images.retain(|image| !matches!(image.action, PlanAction::Keep | PlanAction::Leave));
    }
    if global.json {
        output::json(&plan)?;
    } else {
        output::text(&describe(&plan, args.all))?;
    }
    Ok(Exit::Fine)
}

fn describe(plan: &Plan, all: bool) -> String {
    if plan.images.is_empty() {
        let nothing = if all { "no images\n" } else { "nothing would change (--all lists what stays)\n" };
        return nothing.to_owned();
    }
    let row = |image: &PlannedImage| {
        let holds: Vec<_> = image.holds.iter().map(ToString::to_string).collect();
        [
            image.action.to_string(),
            output::display_name(&image.names, image.id.as_deref()),
            output::size(image.bytes),
            output::word(image.rule.as_deref()),
            output::word(image.priority.as_ref().map(word_of)),
            holds.join(" "),
            image.why.clone().unwrap_or_default(),
        ]
    };
    output::table(["", "IMAGE", "SIZE", "RULE", "PRIORITY", "HOLDS", "WHY"], plan.images.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Hold, Priority};

    #[test]
    fn a_plan_says_what_would_be_done_and_why() {
        let image = PlannedImage {
            id: None,
            names: vec!["docker.io/library/nginx:1".into()],
            action: PlanAction::LetGo,
            rule: Some("protect[0]".into()),
            priority: Some(Priority::High),
            holds: vec![Hold::Pin, Hold::Lease],
            bytes: Some(1 << 20),
            why: Some("excluded".into()),
        };
        let text = describe(&Plan { images: vec![image] }, false);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "        IMAGE                      SIZE      RULE        PRIORITY  HOLDS      WHY",
                "let go  docker.io/library/nginx:1  1.00 MiB  protect[0]  high      pin lease  excluded",
            ]
        );
    }
}
