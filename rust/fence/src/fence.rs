//! `Fence`: prepared once by the process that forks, entered by each of its children.
//!
//! The order in `enter` is what each step still needs: files and limits before capabilities go,
//! the system calls last.

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
use crate::filter::{self, AllowedCalls};
use crate::identity::FreeUser;
use crate::layer::{Layer, Layers, refused};
use crate::namespaces::{self, ProcessNames, Unshare};
use crate::own_folder::{self, OwnFolder};
use crate::private_root::MakeFixed;
use crate::rules::Rules;
use crate::tasks::{self, Tasks};
use crate::{identity, limits, private_root, signal_filter};

/// Closes all descriptors but these, which are sorted; the caller's, since it takes `unsafe`.
pub type CloseOthers = fn(&[RawFd]) -> io::Result<()>;

/// See the module.
pub struct Fence {
    rules: Rules,
    layers: Layers,
    files: Option<Files>,
    programs: Option<Programs>,
    names: Option<ProcessNames>,
    folder: Option<OwnFolder>,
    /// `None` where children keep the user of this process.
    user: Option<u32>,
    /// Whose threads those of a child count as, where it keeps its user and that is root.
    counted_as: Option<u32>,
    /// That children may take as their user.
    free_user: FreeUser,
    /// The machine's `/proc`, until `finish`: a private root has none.
    proc: Option<OwnedFd>,
    /// The size of a page, in bytes.
    page: u64,
    memory: Option<limits::Memory>,
    tasks: Tasks,
    /// This process, to see in a child that it has not ended.
    parent: Option<OwnedFd>,
    unshare: Unshare,
    make_fixed: MakeFixed,
    in_user_namespace: bool,
    /// No file outside the own folder can be changed, its owner and mode neither.
    fixed_files: bool,
}

/// The filters of children.
struct Programs {
    /// Filter of one that may start processes, as far as its kind may.
    own: BpfProgram,
    alone: BpfProgram,
}

impl Fence {
    /// Compiles and opens what children need, and enters name spaces where that is allowed. Must be
    /// called on the only thread of a process that does nothing but fork.
    ///
    /// If `needs_fork` is true afterwards, the process forks, and its child goes on with `finish`;
    /// the parent only waits.
    pub fn prepare(rules: Rules, unshare: Unshare, make_fixed: MakeFixed) -> Result<Self, FenceError> {
        // The caller's may be any: what is made here is for children, of another user perhaps.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let mut layers = Layers::default();
        let files = Files::open(&rules);
        let files = if rules.leaves_out(Layer::Landlock) {
            layers.missing(Layer::Landlock, LEFT_OUT);
            None
        } else {
            match Files::supported() {
                Ok(kinds) => {
                    layers.held(Layer::Landlock, kinds);
                    Some(files)
                }
                Err(reason) => {
                    layers.missing(Layer::Landlock, reason);
                    None
                }
            }
        };
        if rules.leaves_out(Layer::Limits) {
            layers.missing(Layer::Limits, LEFT_OUT);
        } else {
            layers.held(Layer::Limits, "");
        }
        first_to_be_killed(&rules, &mut layers);
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = open("/proc", folder, Mode::empty()).map_err(|error| FenceError::System("/proc", error.into()))?;
        let free_user = FreeUser::choose();
        let mut fence = Self {
            rules,
            layers,
            files,
            programs: None,
            names: None,
            folder: None,
            user: None,
            counted_as: None,
            free_user,
            proc: Some(proc),
            page: rustix::param::page_size() as u64,
            memory: None,
            tasks: Tasks::of_children_alone(),
            parent: None,
            unshare,
            make_fixed,
            in_user_namespace: false,
            fixed_files: false,
        };
        fence.enter_namespaces();
        if !fence.in_user_namespace {
            fence.finish()?;
        }
        Ok(fence)
    }

    fn enter_namespaces(&mut self) {
        if self.rules.leaves_out(Layer::Namespaces) {
            self.layers.missing(Layer::Namespaces, LEFT_OUT);
            return;
        }
        let entered = namespaces::enter(self.unshare).and_then(|in_user_namespace| {
            self.in_user_namespace = in_user_namespace;
            let paths = self.rules.readable.iter().chain(&self.rules.writable);
            private_root::enter(paths.map(PathBuf::as_path), Path::new(own_folder::PATH), self.make_fixed)
        });
        match entered {
            Ok(fixed) => {
                self.fixed_files = fixed;
                self.layers.held(Layer::Namespaces, "network, ipc, mounts");
            }
            Err(error) => self.layers.missing(Layer::Namespaces, refused("unshare or mount", error)),
        }
    }

    /// Returns whether a fork must follow, see `prepare`.
    pub fn needs_fork(&self) -> bool {
        self.in_user_namespace
    }

    /// The rest of `prepare`, in the process that is to fork children.
    pub fn finish(&mut self) -> Result<(), FenceError> {
        self.parent = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok();
        // Orphans of children with processes of their own are reaped by this process.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let proc = self.proc.take();
        if let Some(proc) = &proc {
            let failed = |error| FenceError::System("/proc/self/statm", error);
            self.memory = Some(limits::Memory::open(proc, self.page).map_err(failed)?);
        }
        self.finish_process_names();
        self.finish_user();
        if let (Some(proc), Some(user)) = (proc, self.shared_user()) {
            self.tasks = Tasks::of_user(proc, user);
        }
        self.finish_folder();
        if let Some(files) = &mut self.files {
            files.make(self.folder.as_ref().map(OwnFolder::path))?;
        }
        if self.rules.leaves_out(Layer::Capabilities) {
            self.layers.missing(Layer::Capabilities, LEFT_OUT);
        } else {
            self.layers.held(Layer::Capabilities, "");
        }
        self.compile()
    }

    /// Last, since what the other layers refuse needs no mention.
    fn compile(&mut self) -> Result<(), FenceError> {
        if self.rules.leaves_out(Layer::Seccomp) {
            self.layers.missing(Layer::Seccomp, LEFT_OUT);
            return Ok(());
        }
        let own_files_only = self.user.is_some() || self.fixed_files;
        let Rules { processes, execute, .. } = self.rules;
        let program = |processes| filter::of_a_child(AllowedCalls { processes, execute, own_files_only });
        self.programs = Some(Programs { own: program(processes)?, alone: program(false)? });
        seccompiler::apply_filter(&filter::of_the_family()?)?;
        self.layers.held(Layer::Seccomp, "");
        Ok(())
    }

    fn finish_process_names(&mut self) {
        if self.rules.leaves_out(Layer::ProcessNames) {
            return self.layers.missing(Layer::ProcessNames, LEFT_OUT);
        }
        match ProcessNames::new(self.unshare) {
            Ok(names) => {
                self.names = Some(names);
                self.layers.held(Layer::ProcessNames, "");
            }
            Err(error) => self.layers.missing(Layer::ProcessNames, refused("unshare", error)),
        }
    }

    fn finish_user(&mut self) {
        if !self.in_user_namespace && identity::may_change() && !self.rules.leaves_out(Layer::Limits) {
            self.counted_as = Some(self.free_user.id);
        }
        if self.rules.leaves_out(Layer::User) {
            return self.layers.missing(Layer::User, LEFT_OUT);
        }
        if self.in_user_namespace {
            return self.layers.missing(Layer::User, "not run as root: children keep the user");
        }
        if !identity::may_change() {
            let reason = if rustix::process::getuid().is_root() {
                "root without CAP_SETUID and CAP_SETGID, whose threads the kernel does not count"
            } else {
                "not run as root: children keep the user"
            };
            return self.layers.missing(Layer::User, reason);
        }
        let private_root = self.layers.holds(Layer::Namespaces);
        let closed =
            self.rules.readable.iter().chain(&self.rules.libraries).find(|path| !open_to_all(path, private_root));
        if let Some(path) = closed {
            let reason = format!("{} is closed to other users", path.display());
            return self.layers.missing(Layer::User, reason);
        }
        self.user = Some(self.free_user.id);
        self.layers.held(Layer::User, self.free_user.id.to_string());
    }

    /// Returns the user that the tasks of children count for, if it has other tasks too.
    fn shared_user(&self) -> Option<u32> {
        match self.user.or(self.counted_as) {
            Some(user) => (!self.free_user.alone).then_some(user),
            // For the rest of the machine it is the same user, in a name space too.
            None if self.in_user_namespace && tasks::are_counted_by_namespace() => None,
            None => Some(rustix::process::getuid().as_raw()),
        }
    }

    fn finish_folder(&mut self) {
        if self.rules.leaves_out(Layer::Folder) {
            return self.layers.missing(Layer::Folder, LEFT_OUT);
        }
        if self.rules.folder_size == 0 {
            return self.layers.missing(Layer::Folder, "not asked for");
        }
        if !self.layers.holds(Layer::Namespaces) {
            return self.layers.missing(Layer::Folder, "no mount name space: programs have no folder to write to");
        }
        let user = self.user.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let group = self.user.unwrap_or_else(|| rustix::process::getgid().as_raw());
        match OwnFolder::new(&self.rules, user, group) {
            Ok(folder) => {
                self.folder = Some(folder);
                self.layers.held(Layer::Folder, format!("{} bytes", self.rules.folder_size));
            }
            Err(error) => self.layers.missing(Layer::Folder, refused("mount tmpfs", error)),
        }
    }

    /// Returns the layers that hold. The same for all children.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The folder that children may write to.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(OwnFolder::path)
    }

    /// Empties that folder; no child may run.
    pub fn clear_folder(&mut self) -> Result<(), FenceError> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let made_anew = folder.clear().map_err(|error| FenceError::System("mount tmpfs", error))?;
        if let Some(files) = self.files.as_mut().filter(|_| made_anew) {
            files.make(Some(folder.path()))?;
        }
        Ok(())
    }

    /// Returns whether the kernel counts tasks of others as those of children.
    pub fn shares_tasks(&self) -> bool {
        self.tasks.are_shared()
    }

    /// Lets children have `unseen` tasks more, which are those of others that are not visible here.
    pub fn leave_room_for_tasks(&mut self, unseen: u64) {
        self.tasks.leave_room(unseen);
    }

    /// Must be called before each fork of a child, on the thread that forks.
    pub fn before_fork(&mut self) -> io::Result<()> {
        self.tasks.count();
        self.folder.as_ref().map_or(Ok(()), OwnFolder::open_up)?;
        self.names.as_ref().map_or(Ok(()), ProcessNames::begin)
    }

    /// Must be called after each fork in the parent, also if it failed.
    pub fn after_fork(&self) -> io::Result<()> {
        self.names.as_ref().map_or(Ok(()), ProcessNames::end)
    }

    /// Runs in the child, before any of the program: puts up all fences. The descriptors in `keep`
    /// (sorted) stay open; those of `self` are gone, so that it must be forgotten, never dropped. A
    /// child that is `alone` may start no process, though others of its kind may.
    pub fn enter(&self, keep: &[RawFd], alone: bool, close_others: CloseOthers) -> Result<(), FenceError> {
        let failed = |step| move |error: io::Error| FenceError::System(step, error);
        // Fails where a caller has already made it a leader, which is as good.
        let _ = rustix::process::setsid();
        let place = self.folder().unwrap_or(Path::new("/"));
        // A descriptor more, which the limits may leave no room for: each readable path has one.
        let ruleset = self.files.as_ref().map(Files::ruleset).transpose().map_err(failed("landlock"))?;
        if !self.rules.leaves_out(Layer::Limits) {
            let memory = self.memory.as_ref().ok_or_else(|| io::Error::other("finish was not called"));
            let memory = memory.map_err(failed("setrlimit"))?;
            limits::set(&self.rules, memory, self.tasks.limit(self.rules.tasks)).map_err(failed("setrlimit"))?;
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
        // No program of the machine is started to take its memory when it crashes.
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

    /// After the change of user, which would undo it.
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

const LEFT_OUT: &str = "left out for a test";

/// The process that forks too: its children have it from there, and each of them is larger.
fn first_to_be_killed(rules: &Rules, layers: &mut Layers) {
    if rules.leaves_out(Layer::OutOfMemory) {
        return layers.missing(Layer::OutOfMemory, LEFT_OUT);
    }
    match fs::write("/proc/self/oom_score_adj", "1000") {
        Ok(()) => layers.held(Layer::OutOfMemory, ""),
        Err(error) => layers.missing(Layer::OutOfMemory, refused("oom_score_adj", error)),
    }
}

/// Returns whether any user may read `path`; the folders above it don't count where a private root
/// has them made anew.
fn open_to_all(path: &Path, private_root: bool) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let may = |path: &Path, bits: u32| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits == bits);
    let Ok(path) = path.canonicalize() else { return true };
    let bits = if path.is_dir() { 0o5 } else { 0o4 };
    may(&path, bits) && (private_root || path.ancestors().skip(1).all(|above| may(above, 0o1)))
}
