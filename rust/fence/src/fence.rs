//! `Fence`: prepared once by the process that forks, entered by each of its children.
//!
//! The order of steps in `enter` follows from what each still needs: files and limits are set
//! before capabilities are dropped, and system calls are denied last.

use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{DumpableBehavior, PidfdFlags, Signal};
use seccompiler::BpfProgram;

use crate::error::FenceError;
use crate::files::Files;
use crate::identity::FreeUser;
use crate::layer::{Layer, Layers, refused};
use crate::namespaces::{self, ProcessNames, Unshare};
use crate::own_folder::{self, OwnFolder};
use crate::private_root::MakeFixed;
use crate::rules::Rules;
use crate::seccomp::{self, AllowedCalls};
use crate::{identity, limits, private_root, signal_filter};

/// Closes all descriptors except these, which are sorted. The caller provides it, because it needs
/// `unsafe`.
pub type CloseOthers = fn(&[RawFd]) -> io::Result<()>;

/// Tasks of the same user that count in addition to a child's: those of the forking process, and of
/// the process that waits for it.
const FAMILY: u64 = 4;

/// See the module.
pub struct Fence {
    rules: Rules,
    layers: Layers,
    files: Option<Files>,
    programs: Option<Programs>,
    names: Option<ProcessNames>,
    folder: Option<OwnFolder>,
    /// `None` if children keep the user of this process.
    user: Option<u32>,
    /// The user whose threads include those of a child, if a child keeps its user and that is root.
    counted_as: Option<u32>,
    /// The user that children may take.
    free_user: FreeUser,
    /// The machine's `/proc`, until `finish`: a private root has no `/proc`.
    proc: Option<OwnedFd>,
    /// The size of a page, in bytes.
    page: u64,
    memory: Option<limits::Memory>,
    /// True if the kernel counts tasks of other processes as tasks of children.
    shares_tasks: bool,
    /// Number of tasks of other processes to leave room for.
    others: u64,
    /// This process; a child can see through it whether this process has ended.
    parent: Option<OwnedFd>,
    unshare: Unshare,
    make_fixed: MakeFixed,
    in_user_namespace: bool,
    /// True if no file outside the own folder can be changed, including its owner and mode.
    fixed_files: bool,
}

/// The seccomp programs of children.
struct Programs {
    /// Program of a child that may start processes, if its kind may.
    own: BpfProgram,
    alone: BpfProgram,
}

impl Fence {
    /// Compiles and opens what children need, and enters name spaces if that is allowed. Must be
    /// called on the only thread of a process that does nothing but fork.
    ///
    /// If `needs_fork` is true afterwards, the caller must fork: the child continues with `finish`,
    /// and the parent only waits.
    pub fn prepare(rules: Rules, unshare: Unshare, make_fixed: MakeFixed) -> Result<Self, FenceError> {
        // The caller's mask may be any; the files made here are for children, perhaps of another
        // user.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = open("/proc", folder, Mode::empty()).map_err(|error| FenceError::System("/proc", error.into()))?;
        let mut fence = Self {
            rules,
            layers: Layers::default(),
            files: None,
            programs: None,
            names: None,
            folder: None,
            user: None,
            counted_as: None,
            free_user: FreeUser::choose(),
            proc: Some(proc),
            page: rustix::param::page_size() as u64,
            memory: None,
            shares_tasks: false,
            others: 0,
            parent: None,
            unshare,
            make_fixed,
            in_user_namespace: false,
            fixed_files: false,
        };
        fence.settle(Layer::Landlock, |fence| {
            let kinds = Files::supported()?;
            fence.files = Some(Files::open(&fence.rules));
            Ok(kinds)
        });
        fence.settle(Layer::Limits, |_| Ok(String::new()));
        // Set for the forking process too: its children inherit it, and each of them is larger.
        fence.settle(Layer::OutOfMemory, |_| {
            fs::write("/proc/self/oom_score_adj", "1000").map_err(refused("oom_score_adj")).map(|()| String::new())
        });
        fence.settle(Layer::Namespaces, Self::enter_namespaces);
        if !fence.in_user_namespace {
            fence.finish()?;
        }
        Ok(fence)
    }

    /// Sets up a layer, unless it is left out. `put_up` returns a detail, which may be empty, or
    /// the reason why the machine refuses the layer.
    fn settle(&mut self, layer: Layer, put_up: impl FnOnce(&mut Self) -> Result<String, String>) {
        let left_out = self.rules.leaves_out(layer);
        let state = if left_out { Err("left out for a test".to_owned()) } else { put_up(self) };
        self.layers.insert(layer, (state.is_ok(), state.unwrap_or_else(|reason| reason)));
    }

    fn enter_namespaces(&mut self) -> Result<String, String> {
        let entered = namespaces::enter(self.unshare).and_then(|in_user_namespace| {
            self.in_user_namespace = in_user_namespace;
            let paths = self.rules.readable.iter().chain(&self.rules.writable);
            private_root::enter(paths.map(PathBuf::as_path), Path::new(own_folder::PATH), self.make_fixed)
        });
        self.fixed_files = entered.map_err(refused("unshare or mount"))?;
        Ok("network, ipc, mounts".to_owned())
    }

    /// Returns whether a fork must follow (see `prepare`).
    pub fn needs_fork(&self) -> bool {
        self.in_user_namespace
    }

    /// Completes `prepare`, in the process that will fork children.
    pub fn finish(&mut self) -> Result<(), FenceError> {
        self.parent = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok();
        // This process reaps orphans of children that started processes.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        if let Some(proc) = self.proc.take() {
            let failed = |error| FenceError::System("/proc/self/statm", error);
            self.memory = Some(limits::Memory::open(&proc, self.page).map_err(failed)?);
        }
        self.settle(Layer::ProcessNames, |fence| {
            fence.names = Some(ProcessNames::new(fence.unshare).map_err(refused("unshare"))?);
            Ok(String::new())
        });
        if !self.in_user_namespace && identity::may_change() && !self.rules.leaves_out(Layer::Limits) {
            self.counted_as = Some(self.free_user.id);
        }
        self.settle(Layer::User, Self::choose_user);
        self.shares_tasks = self.has_shared_user();
        self.settle(Layer::Folder, Self::make_folder);
        if let Some(files) = &mut self.files {
            files.make(self.folder.as_ref().map(OwnFolder::path))?;
        }
        self.settle(Layer::Capabilities, |_| Ok(String::new()));
        self.compile()
    }

    /// Compiled last, because calls that the other layers refuse need no filter.
    fn compile(&mut self) -> Result<(), FenceError> {
        if !self.rules.leaves_out(Layer::Seccomp) {
            let own_files_only = self.user.is_some() || self.fixed_files;
            let Rules { processes, execute, .. } = self.rules;
            let program = |processes| seccomp::of_a_child(AllowedCalls { processes, execute, own_files_only });
            self.programs = Some(Programs { own: program(processes)?, alone: program(false)? });
            seccompiler::apply_filter(&seccomp::of_the_family()?)?;
        }
        self.settle(Layer::Seccomp, |_| Ok(String::new()));
        Ok(())
    }

    fn choose_user(&mut self) -> Result<String, String> {
        if self.in_user_namespace || !(identity::may_change() || rustix::process::getuid().is_root()) {
            return Err("not run as root: children keep the user".to_owned());
        }
        if !identity::may_change() {
            return Err("root without CAP_SETUID and CAP_SETGID, whose threads the kernel does not count".to_owned());
        }
        let private_root = self.holds(Layer::Namespaces);
        let closed =
            self.rules.readable.iter().chain(&self.rules.libraries).find(|path| !open_to_all(path, private_root));
        if let Some(path) = closed {
            return Err(format!("{} is closed to other users", path.display()));
        }
        self.user = Some(self.free_user.id);
        Ok(self.free_user.id.to_string())
    }

    /// Returns whether the user to whom the tasks of children count has other tasks too.
    fn has_shared_user(&self) -> bool {
        if self.user.or(self.counted_as).is_some() {
            return !self.free_user.alone;
        }
        // Outside of a user name space it is still the same user.
        !(self.in_user_namespace && namespaces::count_tasks_apart())
    }

    fn make_folder(&mut self) -> Result<String, String> {
        if self.rules.writable_bytes == 0 {
            return Err("not asked for".to_owned());
        }
        if !self.holds(Layer::Namespaces) {
            return Err("no mount name space: programs have no folder to write to".to_owned());
        }
        let user = self.user.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let group = self.user.unwrap_or_else(|| rustix::process::getgid().as_raw());
        self.folder = Some(OwnFolder::new(&self.rules, user, group).map_err(refused("mount tmpfs"))?);
        Ok(format!("{} bytes", self.rules.writable_bytes))
    }

    fn holds(&self, layer: Layer) -> bool {
        self.layers.get(&layer).is_some_and(|(holds, _)| *holds)
    }

    /// Returns the layers that are set up, the same for all children.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The folder that children may write to.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(OwnFolder::path)
    }

    /// Empties the folder; no child may run meanwhile.
    pub fn clear_folder(&mut self) -> Result<(), FenceError> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let made_anew = folder.clear().map_err(|error| FenceError::System("mount tmpfs", error))?;
        if let Some(files) = self.files.as_mut().filter(|_| made_anew) {
            files.make(Some(folder.path()))?;
        }
        Ok(())
    }

    /// Returns whether the kernel counts tasks of other processes as tasks of children.
    pub fn shares_tasks(&self) -> bool {
        self.shares_tasks
    }

    /// Allows children this many more tasks, to make up for tasks of other processes.
    pub fn leave_room_for_tasks(&mut self, others: u64) {
        self.others = others;
    }

    /// Must be called before each fork of a child, on the forking thread.
    pub fn before_fork(&self) -> io::Result<()> {
        self.folder.as_ref().map_or(Ok(()), OwnFolder::open_up)?;
        self.names.as_ref().map_or(Ok(()), ProcessNames::begin)
    }

    /// Must be called in the parent after each fork, even if it failed.
    pub fn after_fork(&self) -> io::Result<()> {
        self.names.as_ref().map_or(Ok(()), ProcessNames::end)
    }

    /// Sets up all fences in a child, before any code of the program runs. The descriptors in
    /// `keep` (sorted) stay open; those of `self` are closed, so `self` must be forgotten, never
    /// dropped. A child that is `alone` may not start processes, even if others of its kind may.
    pub fn enter(&self, keep: &[RawFd], alone: bool, close_others: CloseOthers) -> Result<(), FenceError> {
        let failed = |step| move |error: io::Error| FenceError::System(step, error);
        // Fails if the caller has already made it a session leader, which is as good.
        let _ = rustix::process::setsid();
        let place = self.folder().unwrap_or(Path::new("/"));
        // Opened before the limits, which may leave no room for another descriptor: each readable
        // path has one.
        let ruleset = self.files.as_ref().map(Files::ruleset).transpose().map_err(failed("landlock"))?;
        if !self.rules.leaves_out(Layer::Limits) {
            let memory = self.memory.as_ref().ok_or_else(|| io::Error::other("finish was not called"));
            let memory = memory.map_err(failed("setrlimit"))?;
            let tasks = self.rules.tasks.saturating_add(FAMILY).saturating_add(self.others);
            limits::set(&self.rules, memory, tasks).map_err(failed("setrlimit"))?;
        }
        match (self.user, self.counted_as) {
            (Some(user), _) => identity::become_user(user).map_err(failed("setresuid"))?,
            (None, Some(user)) => identity::be_counted_as(user).map_err(failed("setresuid"))?,
            (None, None) => {}
        }
        rustix::process::chdir(place).map_err(io::Error::from).map_err(failed("chdir"))?;
        if !self.rules.leaves_out(Layer::Capabilities) {
            identity::drop_capabilities().map_err(failed("capset"))?;
        }
        self.end_with_parent().map_err(failed("prctl"))?;
        // Otherwise the machine could start a program that reads its memory when it crashes.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(io::Error::from)
            .map_err(failed("prctl"))?;
        rustix::thread::set_no_new_privs(true).map_err(io::Error::from).map_err(failed("no_new_privs"))?;
        if let Some(ruleset) = ruleset {
            ruleset.restrict_self()?;
        }
        close_others(keep).map_err(failed("close_range"))?;
        if let Some(programs) = &self.programs {
            let program = if alone { &programs.alone } else { &programs.own };
            seccompiler::apply_filter(&signal_filter::of_process(std::process::id(), program))?;
        }
        Ok(())
    }

    /// Must come after the change of user, which would undo it.
    fn end_with_parent(&self) -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let Some(parent) = &self.parent else { return Ok(()) };
        let mut ended = [PollFd::new(parent, PollFlags::IN)];
        if poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0 {
            return Err(io::Error::other("the process that forked has ended"));
        }
        Ok(())
    }
}

/// Returns whether any user may read `path`. The folders above it don't count if a private root
/// makes new ones.
fn open_to_all(path: &Path, private_root: bool) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let may = |path: &Path, bits: u32| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits == bits);
    let Ok(path) = path.canonicalize() else { return true };
    let bits = if path.is_dir() { 0o5 } else { 0o4 };
    may(&path, bits) && (private_root || path.ancestors().skip(1).all(|above| may(above, 0o1)))
}
