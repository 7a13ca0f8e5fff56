//! containerd 1.7 beside the distribution's: the tests of pins need one that knows them.
//!
//! It is the next Debian's package, fetched through apt with lists of its own (so the signature is checked and the
//! machine's sources stay as they are) and unpacked without being installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::command::{command, output, run};

/// The version, and the directory's name.
const VERSION: &str = "1.7.24";

/// The Debian release that has it.
const RELEASE: &str = "trixie";

/// The programs that are taken out of the package.
const PROGRAMS: [&str; 3] = ["containerd", "ctr", "containerd-shim-runc-v2"];

/// Fetches it unless it is there.
pub(super) fn setup(cache: &Path, quiet: bool) -> Result<()> {
    let dir = cache.join(format!("containerd-{VERSION}"));
    if PROGRAMS.iter().all(|program| dir.join(program).exists()) {
        if !quiet {
            println!("containerd {VERSION}: there ({})", dir.display());
        }
        return Ok(());
    }
    println!("containerd {VERSION}: fetching Debian {RELEASE}'s package");
    let work = cache.join(format!("containerd-{VERSION}.fetch"));
    let _ = fs::remove_dir_all(&work);
    let fetched = fetch(&work, &dir);
    let _ = fs::remove_dir_all(&work);
    fetched.with_context(|| format!("containerd {VERSION}"))?;
    println!("containerd {VERSION}: there ({})", dir.display());
    Ok(())
}

fn fetch(work: &Path, dir: &Path) -> Result<()> {
    let (mirror, keyring) = mirror()?;
    for part in ["lists/partial", "cache/archives/partial", "tree"] {
        let part = work.join(part);
        fs::create_dir_all(&part).with_context(|| format!("creating {}", part.display()))?;
    }
    let sources = work.join("sources.list");
    let line = format!("deb [signed-by={}] {mirror} {RELEASE} main\n", keyring.display());
    fs::write(&sources, line).with_context(|| format!("writing {}", sources.display()))?;
    run(apt_get(work, &sources).args(["-qq", "update"]))?;
    run(apt_get(work, &sources).args(["-qq", "download", "containerd"]))?;
    let package = package(work)?;
    let tree = work.join("tree");
    run(command("dpkg-deb").arg("--extract").arg(&package).arg(&tree))?;
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    for program in PROGRAMS {
        let from = tree.join("usr/bin").join(program);
        fs::copy(&from, dir.join(program)).with_context(|| format!("copying {}", from.display()))?;
    }
    Ok(())
}

/// apt with everything of its own; run in `work`, where it leaves what it downloads.
fn apt_get(work: &Path, sources: &Path) -> Command {
    let mut apt = command("apt-get");
    for (option, value) in [
        ("Dir::Etc::sourcelist", sources.display().to_string()),
        ("Dir::Etc::sourceparts", "-".to_owned()),
        ("Dir::State::Lists", work.join("lists").display().to_string()),
        ("Dir::Cache", work.join("cache").display().to_string()),
        // apt's own user may not enter the cache directory.
        ("APT::Sandbox::User", "root".to_owned()),
    ] {
        apt.args(["-o", &format!("{option}={value}")]);
    }
    apt.current_dir(work);
    apt
}

/// The downloaded package, whose version must be the one that the tests are written for.
fn package(work: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(work).with_context(|| format!("listing {}", work.display()))?;
    let package = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    let version = output(command("dpkg-deb").arg("--field").arg(&package).arg("Version"))?;
    if !version.starts_with(VERSION) {
        bail!("Debian {RELEASE} has {} now", version.trim());
    }
    Ok(package)
}

/// The Debian mirror that this machine uses, and the keys that it is checked with.
fn mirror() -> Result<(String, PathBuf)> {
    let format = "$(REPO_URI) $(LABEL) $(COMPONENT)";
    let targets =
        output(command("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    let mirror = targets
        .lines()
        .filter_map(|line| line.strip_suffix(" Debian main"))
        .next()
        .context("no source of this machine's apt is a Debian mirror: apt-get update?")?;
    let keyring = PathBuf::from("/usr/share/keyrings/debian-archive-keyring.gpg");
    if !keyring.exists() {
        bail!("{} is not there: install debian-archive-keyring", keyring.display());
    }
    Ok((mirror.to_owned(), keyring))
}
