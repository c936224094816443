//! Which directories lead to a file, and what tells one state of a file from another.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

/// The system itself follows no more symbolic links than this.
const MOST_LINKS: usize = 40;

/// Which file this is, how long it is, and when it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device and inode, where the system has them.
    pub node: (u64, u64),
    /// Its length.
    pub bytes: u64,
    /// As the file system says; compared for equality only, since clocks and backups step back.
    pub modified: Option<SystemTime>,
}

/// The stamp of what `path` leads to; that of nothing if there is nothing.
pub(super) fn stamp(path: &Path) -> Stamp {
    fs::metadata(path).map(|found| Stamp { node: node(&found), bytes: found.len(), modified: found.modified().ok() }).unwrap_or_default()
}

#[cfg(unix)]
fn node(found: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

#[cfg(not(unix))]
const fn node(_: &fs::Metadata) -> (u64, u64) {
    (0, 0)
}

/// The directories that are watched now, with the inode that each had when its watch began.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<PathBuf, (u64, u64)>);

impl Places {
    /// Watches what leads to `path` now, and nothing else.
    pub(super) fn follow(&mut self, path: &Path, events: &mut RecommendedWatcher) {
        let wanted: BTreeMap<PathBuf, (u64, u64)> = leading_to(path)
            .into_iter()
            .filter_map(|folder| {
                let found = fs::metadata(&folder).ok()?;
                Some((folder, node(&found)))
            })
            .collect();
        if wanted == self.0 {
            return;
        }
        for folder in self.0.keys() {
            // It may be gone, and its watch with it.
            let _ = events.unwatch(folder);
        }
        self.0.clear();
        for (folder, node) in wanted {
            match events.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.0.insert(folder, node)),
                Err(error) => tracing::debug!(folder = %folder.display(), %error, "not watched: looked at once a second"),
            }
        }
    }

    /// Begins every watch anew at the next look.
    pub(super) fn forget(&mut self) {
        for node in self.0.values_mut() {
            *node = (0, 0);
        }
    }
}

/// The directories in which something can change what `path` leads to: its own, and that of every symbolic link on the way and
/// of what each leads to.
fn leading_to(path: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut links = 0;
    let mut done = if path.is_absolute() { PathBuf::new() } else { PathBuf::from(".") };
    let mut rest: Vec<PathBuf> = components(path);
    while let Some(next) = rest.pop() {
        let here = done.join(&next);
        match fs::read_link(&here) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                folders.push(done.clone());
                if target.is_absolute() {
                    done = PathBuf::new();
                }
                rest.extend(components(&target));
            }
            _ if rest.is_empty() => folders.push(done.clone()),
            _ => done = here,
        }
    }
    folders.sort();
    folders.dedup();
    folders
}

/// The parts of a path, last one first.
fn components(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
    let mut parts: Vec<PathBuf> = parts.map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_directory_on_the_way_of_links_leads_to_the_file() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path().canonicalize().expect("a folder");
        fs::create_dir_all(root.join("etc/..v1")).expect("folders");
        fs::create_dir_all(root.join("srv")).expect("folders");
        fs::write(root.join("srv/real.yaml"), "").expect("a file");
        symlink("..v1", root.join("etc/..data")).expect("a link");
        symlink("..data/limit.yaml", root.join("etc/limit.yaml")).expect("a link");
        symlink(root.join("srv/real.yaml"), root.join("etc/..v1/limit.yaml")).expect("a link");
        let expected: Vec<_> = ["etc", "etc/..v1", "srv"].iter().map(|folder| root.join(folder)).collect();
        assert_eq!(leading_to(&root.join("etc/limit.yaml")), expected);
    }

    #[test]
    fn links_in_a_circle_end() {
        let root = tempfile::tempdir().expect("a folder");
        symlink("b", root.path().join("a")).expect("a link");
        symlink("a", root.path().join("b")).expect("a link");
        assert_eq!(leading_to(&root.path().join("a")), [root.path().to_owned()]);
    }
}
