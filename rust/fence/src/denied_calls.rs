//! The denied system calls of a fenced process, by family: data without decisions.
//! that are newer than this list are refused in `signal_filter`, by their number.

use libc::c_long;

/// Sockets that reach another process. `socketpair` has separate rules in `filter`.
const SOCKETS: &[c_long] =
    &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

/// Other processes: their memory, descriptors and threads. Signals are in `signal_filter`.
const OTHER_PROCESSES: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

/// Leaving the session or the group by which a child and all that it started are killed.
const SESSIONS: &[c_long] = &[libc::SYS_setsid, libc::SYS_setpgid];

/// The call that puts up a filter, which a child makes before it is refused.
pub(crate) const FILTERS: c_long = libc::SYS_seccomp;

/// Calls by which the forking process makes a child's name space, and its folder again.
const OF_A_NAMESPACE: &[c_long] = &[libc::SYS_unshare, libc::SYS_setns, libc::SYS_mount, libc::SYS_umount2];

const NAMESPACES_AND_MOUNTS: &[c_long] = &[
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
];

/// Calls that libc does not name on each machine; the numbers are the same on all.
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;

/// Large parts of the kernel that no program under test needs.
const KERNEL: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // The machine, or all processes of a user, have a fixed number of these.
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vmsplice,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_membarrier,
    libc::SYS_set_mempolicy,
    STATMOUNT,
    LISTMOUNT,
    // They make all files of the machine go to disk, also those of siblings.
    libc::SYS_sync,
    libc::SYS_syncfs,
];

/// Memory that outlives the process, is shared with others, or is not limited.
const SHARED_MEMORY: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
];

/// Calls by which a child takes its user and drops capabilities.
const OF_A_USER: &[c_long] = &[libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setgroups, libc::SYS_capset];

const IDENTITY: &[c_long] = &[
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
];

/// Calls that a module may make while the forking process imports it.
const PRIORITY: &[c_long] = &[
    libc::SYS_setpriority,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    // A child has one core, so that many threads take no time from its siblings.
    libc::SYS_sched_setaffinity,
    libc::SYS_ioprio_set,
];

/// Calls of the families above that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OF_THE_MACHINE: &[c_long] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
    libc::SYS_uselib,
    libc::SYS_inotify_init,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_THE_MACHINE: &[c_long] = &[];

/// Calls that neither a child nor the process that forks it makes: refused to that, and so to each
/// child.
const TO_ALL: &[&[c_long]] =
    &[SOCKETS, KERNEL, SHARED_MEMORY, OF_THE_MACHINE, OTHER_PROCESSES, NAMESPACES_AND_MOUNTS, IDENTITY];

/// Calls of the forking process and its modules, or of a child before its filter. The lists are
/// short: the kernel translates the filter of each child again.
const TO_CHILDREN: &[&[c_long]] = &[SESSIONS, OF_A_NAMESPACE, OF_A_USER, PRIORITY];

/// Refused to all whatever their arguments.
pub(crate) fn to_all() -> impl Iterator<Item = c_long> {
    TO_ALL.iter().copied().flatten().copied()
}

/// Refused to children whatever their arguments.
pub(crate) fn to_children() -> impl Iterator<Item = c_long> {
    TO_CHILDREN.iter().copied().flatten().copied()
}

/// `fchmodat2`, whose number is the same on every machine; libc names it on some only.
const FCHMODAT2: c_long = 452;

/// Calls that Landlock does not refuse to the owner of a file, wherever the file is; for children
/// that own files of others. `truncate` is among them on kernels older than 6.2.
pub(crate) const OF_AN_OWNER: &[c_long] = &[
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// The same by their older names.
#[cfg(target_arch = "x86_64")]
pub(crate) const OF_AN_OWNER_ONCE: &[c_long] =
    &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OF_AN_OWNER_ONCE: &[c_long] = &[];

/// Calls that start a process without flags for the shared parts.
#[cfg(target_arch = "x86_64")]
pub(crate) const FORKS: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const FORKS: &[c_long] = &[];

/// Put another program in the place of this one.
pub(crate) const EXECUTE: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Calls with flags among their arguments, and which of them these are: data out of band, which no
/// program under test needs.
pub(crate) const MESSAGES: &[(c_long, u8)] = &[
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
    (libc::SYS_recvfrom, 3),
    (libc::SYS_recvmsg, 2),
    (libc::SYS_recvmmsg, 3),
];
pub(crate) const OUT_OF_BAND: u32 = libc::MSG_OOB as u32;

/// `setsockopt`: programs that the kernel runs for each message.
pub(crate) const SOCKET_PROGRAMS: &[u32] = &[
    libc::SO_ATTACH_FILTER as u32,
    50, // SO_ATTACH_BPF
    51, // SO_ATTACH_REUSEPORT_CBPF
    52, // SO_ATTACH_REUSEPORT_EBPF
];

/// `getsockopt`: a descriptor of the process at the other end.
pub(crate) const PEER_DESCRIPTOR: u32 = 77; // SO_PEERPIDFD

/// `prctl`: adding filters, being traced by another process, moving the memory map, adopting
/// processes, keeping others from a core.
pub(crate) const PRCTL_OPTIONS: &[u32] = &[
    libc::PR_SET_SECCOMP as u32,
    libc::PR_SET_PTRACER as u32,
    libc::PR_SET_MM as u32,
    libc::PR_SET_CHILD_SUBREAPER as u32,
    62, // PR_SCHED_CORE
];

/// `prctl`, as a child does before its filter: outliving the forking process, being read by others.
pub(crate) const PRCTL_OPTIONS_OF_A_CHILD: &[u32] = &[libc::PR_SET_PDEATHSIG as u32, libc::PR_SET_DUMPABLE as u32];

/// `fcntl`: signals of a descriptor to another process; leases, for which whoever opens a file
/// waits, and notices of changes in folders, for both of which it is enough to read them; the size
/// of pipes, for which a user has a fixed number of pages.
pub(crate) const FCNTL_COMMANDS: &[u32] = &[
    libc::F_SETOWN as u32,
    15, // F_SETOWN_EX
    libc::F_SETLEASE as u32,
    libc::F_NOTIFY as u32,
    libc::F_SETPIPE_SZ as u32,
];

/// Locks whole files that one may only read, until it is undone. A compiler's are on its own files,
/// and so are those by `fcntl`, of databases too: to lock others out there takes a file that may be
/// written.
pub(crate) const WHOLE_FILE_LOCKS: c_long = libc::SYS_flock;

/// `ioctl`: input of a terminal, owners of a descriptor's signals, attributes of a file, which a
/// descriptor for reading is enough for.
pub(crate) const IOCTL_REQUESTS: &[u32] = &[
    libc::TIOCSTI as u32,
    libc::TIOCSCTTY as u32,
    libc::TIOCCONS as u32,
    0x541C, // TIOCLINUX
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
    libc::FS_IOC_SETFLAGS as u32,
    libc::FS_IOC32_SETFLAGS as u32,
    libc::FS_IOC_SETVERSION as u32,
    libc::FS_IOC32_SETVERSION as u32,
    0x401C_5820, // FS_IOC_FSSETXATTR
    0x4080_6685, // FS_IOC_ENABLE_VERITY
    0x800C_6613, // FS_IOC_SET_ENCRYPTION_POLICY
];

/// `clone`: name spaces, and a process that is its parent's sibling.
pub(crate) const CLONE_FLAGS: &[u32] = &[
    libc::CLONE_PARENT as u32,
    libc::CLONE_NEWNS as u32,
    libc::CLONE_NEWUSER as u32,
    libc::CLONE_NEWPID as u32,
    libc::CLONE_NEWNET as u32,
    libc::CLONE_NEWIPC as u32,
    libc::CLONE_NEWUTS as u32,
    libc::CLONE_NEWCGROUP as u32,
];
