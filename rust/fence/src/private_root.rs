//! A root that contains only the readable paths, in memory.
//!
//! - A missing file can't be opened, even on kernels without Landlock; folders above a readable
//!   path are open to every user here, whatever their modes outside.
//! - The new tree is complete before any path of the old root is bound into it, so that nothing is
//!   ever written to the old root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// Folder in which the new root is built: a folder that every machine has.
const BASE: &str = "/tmp";
/// The old root inside the new one, until it is detached.
const OLD: &str = "old";
/// The file that programs read as their input; in their folder it has another name, if present.
const STDIN: &str = "/dev/stdin";
const INPUT: &str = ".stdin";
/// Folder of the C library's semaphores, which `multiprocessing` uses for locks, even between
/// threads.
const SHARED: &str = "/dev/shm";
/// Symbolic links that are followed before a path counts as a loop.
const LINKS: usize = 40;

/// Parts of the new tree.
#[derive(Debug, Default)]
struct Plan {
    /// Paths without symbolic links, and whether each is a folder.
    bound: BTreeMap<PathBuf, bool>,
    links: BTreeMap<PathBuf, PathBuf>,
}

/// The system call that makes all mounts at and below a path read-only, which needs `unsafe` in the
/// caller.
pub type MakeFixed = fn(&Path) -> io::Result<()>;

/// Makes `paths`, and an empty folder at `folder`, the whole tree of this process. Returns whether
/// all bound paths are read-only.
pub(crate) fn enter<'a>(
    paths: impl Iterator<Item = &'a Path>,
    folder: &Path,
    make_fixed: MakeFixed,
) -> io::Result<bool> {
    let mut plan = Plan::default();
    for path in paths {
        plan.add(path);
    }
    plan.drop_nested();
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let base = Path::new(BASE);
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", base, "tmpfs", flags, Some(c"mode=0755,size=1m"))?;
    fs::create_dir(base.join(OLD))?;
    rustix::process::pivot_root(base, base.join(OLD))?;
    rustix::process::chdir("/")?;
    plan.make()?;
    fs::create_dir_all(folder)?;
    fs::create_dir_all("/dev")?;
    symlink(folder.join(INPUT), STDIN)?;
    symlink(folder, SHARED)?;
    let old = Path::new("/").join(OLD);
    let fixed = plan.bind(&old, make_fixed)?;
    rustix::mount::unmount(&old, UnmountFlags::DETACH)?;
    fs::remove_dir(&old)?;
    rustix::mount::mount_remount("/", flags | MountFlags::RDONLY, "")?;
    Ok(fixed)
}

impl Plan {
    /// Follows `path` link by link; a path that does not exist is skipped.
    fn add(&mut self, path: &Path) {
        let mut ahead: Vec<PathBuf> = names(path);
        let mut at = PathBuf::from("/");
        let mut links = BTreeMap::new();
        let mut followed = 0;
        while let Some(name) = ahead.pop() {
            if name == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            match fs::read_link(&next) {
                Ok(_) if followed == LINKS => return,
                Ok(target) => {
                    followed += 1;
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    ahead.extend(names(&target));
                    links.insert(next, target);
                }
                Err(_) => at = next,
            }
        }
        if let Ok(found) = fs::metadata(&at)
            && at != Path::new("/")
        {
            self.bound.insert(at, found.is_dir());
            self.links.append(&mut links);
        }
    }

    /// Drops paths inside of a bound folder, which come with it.
    fn drop_nested(&mut self) {
        let folders: BTreeSet<PathBuf> =
            self.bound.iter().filter(|(_, folder)| **folder).map(|(path, _)| path.clone()).collect();
        let within = |path: &Path| path.ancestors().skip(1).any(|above| folders.contains(above));
        self.bound.retain(|path, _| !within(path));
        self.links.retain(|path, _| !within(path));
    }

    /// Makes folders, links and empty files to bind to.
    fn make(&self) -> io::Result<()> {
        for (path, folder) in &self.bound {
            if *folder {
                fs::create_dir_all(path)?;
            } else {
                fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
                fs::write(path, "")?;
            }
        }
        for (path, target) in &self.links {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            symlink(target, path)?;
        }
        Ok(())
    }

    /// Binds the paths; true if all of them are read-only.
    fn bind(&self, old: &Path, make_fixed: MakeFixed) -> io::Result<bool> {
        let mut fixed = true;
        for path in self.bound.keys() {
            let source = old.join(path.strip_prefix("/").unwrap_or(path));
            rustix::mount::mount_bind_recursive(&source, path)?;
            if make_fixed(path).is_err() {
                // Before Linux 5.12 mounts below a path stay as they were.
                fixed = false;
                let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
                let _ = rustix::mount::mount_remount(path, flags, "");
            }
        }
        Ok(fixed)
    }
}

/// Returns the parts of a path, the last one first.
fn names(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    //! Returns the plan for paths; nothing is mounted.

    use super::*;

    #[test]
    fn links_are_followed_and_kept() {
        let folder = std::env::temp_dir().join(format!("guerdon-private-root-{}", std::process::id()));
        let real = folder.join("real/inner");
        fs::create_dir_all(&real).unwrap();
        fs::write(real.join("file"), "").unwrap();
        symlink("real", folder.join("link")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        let mut plan = Plan::default();
        for path in ["link/inner", "link/inner/file", "loop/inner", "nothing"] {
            plan.add(&folder.join(path));
        }
        plan.drop_nested();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(plan.bound, BTreeMap::from([(real, true)]));
        assert_eq!(plan.links.get(&folder.join("link")), Some(&PathBuf::from("real")));
    }

    #[test]
    fn the_root_itself_is_never_bound() {
        let mut plan = Plan::default();
        plan.add(Path::new("/"));
        plan.add(Path::new("/usr/../.."));
        assert!(plan.bound.is_empty());
    }
}
