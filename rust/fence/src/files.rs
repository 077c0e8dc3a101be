//! The Landlock ruleset: which files a child may read and write; no TCP, no signals and no abstract
//! sockets beyond itself.
//!
//! - The ruleset is made once, and again for each new own folder; a child only applies it.
//! - Acts that only newer kernels can refuse are refused there, and left to seccomp on older ones.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use crate::rules::Rules;

/// The newest interface for whose rights the rules below were chosen.
const NEWEST: ABI = ABI::V7;

/// The paths of the rules, open, and the rulesets made of them.
pub(crate) struct Files {
    paths: Vec<(PathFd, BitFlags<AccessFs>)>,
    execute: bool,
    ruleset: Option<RulesetCreated>,
}

impl Files {
    pub(crate) fn open(rules: &Rules) -> Self {
        let mut read = AccessFs::ReadFile | AccessFs::ReadDir;
        if rules.execute {
            read |= AccessFs::Execute;
        }
        let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
        let mut paths = open_all(&rules.readable, read);
        paths.extend(open_all(&rules.writable, write));
        Self { paths, execute: rules.execute, ruleset: None }
    }

    /// Makes the ruleset; `folder` may be written to as well.
    pub(crate) fn make(&mut self, folder: Option<&Path>) -> Result<(), RulesetError> {
        let mut ruleset = empty()?;
        for (path, access) in &self.paths {
            ruleset = ruleset.add_rule(PathBeneath::new(path, *access))?;
        }
        if let Some(folder) = folder
            && let Ok(path) = PathFd::new(folder)
        {
            ruleset = ruleset.add_rule(PathBeneath::new(path, folder_access(self.execute)))?;
        }
        self.ruleset = Some(ruleset);
        Ok(())
    }

    /// Returns a copy of the ruleset, for one child.
    pub(crate) fn ruleset(&self) -> io::Result<RulesetCreated> {
        self.ruleset.as_ref().ok_or_else(|| io::Error::other("no ruleset was made"))?.try_clone()
    }

    /// Returns a description of the acts that Landlock can refuse on this kernel, or the reason why
    /// it can't refuse any.
    pub(crate) fn supported() -> Result<String, String> {
        required()
            .handle_access(AccessFs::from_all(ABI::V1))
            .and_then(Ruleset::create)
            .map_err(|error| error.to_string())?;
        let mut kinds = vec!["files"];
        if required().handle_access(AccessNet::from_all(ABI::V4)).is_ok() {
            kinds.push("TCP");
        }
        if required().scope(Scope::from_all(ABI::V6)).is_ok() {
            kinds.push("signals");
        }
        Ok(kinds.join(", "))
    }
}

/// Returns a ruleset without rules, which refuses everything that this kernel can refuse.
fn empty() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

/// Returns a ruleset that fails if the kernel lacks a part of it.
fn required() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

/// All rights except those on devices and sockets.
fn folder_access(execute: bool) -> BitFlags<AccessFs> {
    let mut access = AccessFs::from_all(NEWEST)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev | AccessFs::Execute);
    if execute {
        access |= AccessFs::Execute;
    }
    access
}

/// Opens paths for rules. A file has fewer rights than a folder; a path that doesn't exist grants
/// nothing.
fn open_all(paths: &[PathBuf], access: BitFlags<AccessFs>) -> Vec<(PathFd, BitFlags<AccessFs>)> {
    let of_a_file = AccessFs::from_file(NEWEST);
    paths
        .iter()
        .filter_map(|path| {
            let access = if path.is_dir() { access } else { access & of_a_file };
            Some((PathFd::new(path).ok()?, access))
        })
        .collect()
}
