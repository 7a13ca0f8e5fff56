//! From files to a config: the main file, then its drop-ins in order of their names, then what is found on the node.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;

use super::{Config, ConfigError, Source, Sources, check, distro, file::ConfigFile, keys::Key};

/// Where the config lies unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/imgwarden/config.toml";

impl Config {
    /// Reads `path` (or the default, which may be absent) and `path.d/*.toml`, checks everything, and finds containerd
    /// on this node where no file names it. Changes nothing.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_under(path, Path::new("/"))
    }

    /// As [`Config::load`], for a node whose root directory is `root`: the default path and everything that is looked
    /// for lie below it. What is written in a file and what is found is meant as seen on that node.
    pub fn load_under(path: Option<&Path>, root: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::from_files(&files(path, root)?)?;
        distro::complete(&mut config, root);
        check::possible(&config)?;
        Ok(config)
    }

    /// Later files win; `[[tables]]` add up.
    fn from_files(paths: &[PathBuf]) -> Result<Self, ConfigError> {
        let mut merged = toml::Table::new();
        let mut sources = Sources::new();
        let mut config = Self::default();
        for path in paths {
            let file = ConfigFile::read(path)?;
            note_sources(&mut sources, &file, &merged);
            merge(&mut merged, file.table, Key::top());
            config = Self::deserialize(merged.clone()).map_err(|error| ConfigError::Merge {
                path: path.clone(),
                message: error.message().to_owned(),
            })?;
        }
        config.sources = sources;
        Ok(config)
    }
}

/// The files to read, in order.
fn files(path: Option<&Path>, root: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let main = path.map_or_else(|| distro::under(root, Path::new(DEFAULT_PATH)), Path::to_path_buf);
    let mut drop_ins = main.clone().into_os_string();
    drop_ins.push(".d");
    let drop_ins = PathBuf::from(drop_ins);

    let mut files = Vec::new();
    let failed = |path: &Path, source| ConfigError::Read { path: path.into(), source };
    match fs::metadata(&main) {
        Ok(_) => files.push(main),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_none() => {}
        Err(error) => return Err(failed(&main, error)),
    }
    let entries = match fs::read_dir(&drop_ins) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(failed(&drop_ins, error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths.map_err(|error| failed(&drop_ins, error))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    files.extend(paths);
    Ok(files)
}

fn merge(into: &mut toml::Table, from: toml::Table, known: &Key) {
    for (name, value) in from {
        let Some(key) = known.keys.get(&name) else { continue };
        match (into.get_mut(&name), value) {
            (Some(toml::Value::Array(all)), toml::Value::Array(more)) if key.repeated => all.extend(more),
            (Some(toml::Value::Table(into)), toml::Value::Table(from)) => merge(into, from, key),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// The n-th `[[protect]]` of a file is the (n + those before)-th of the config.
fn note_sources(sources: &mut Sources, file: &ConfigFile, before: &toml::Table) {
    for written in &file.written {
        let source = Source::File { path: file.path.clone(), line: written.line };
        sources.insert(shifted(&written.key, before).unwrap_or_else(|| written.key.clone()), source);
    }
}

fn shifted(key: &str, before: &toml::Table) -> Option<String> {
    let (name, rest) = key.split_once('[')?;
    let (index, rest) = rest.split_once(']')?;
    let earlier = before.get(name)?.as_array()?.len();
    Some(format!("{name}[{}]{rest}", index.parse::<usize>().ok()? + earlier))
}
