//! Beginning of a child's seccomp program: signals to itself only, and absent calls.
//!
//! Separate from `filter` because it contains the child's process id, and because its absent calls
//! fail with "not implemented", after which the C library tries the older call (`clone` for
//! `clone3`).

use libc::c_long;
use seccompiler::sock_filter;

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_GREATER: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// Offsets in `struct seccomp_data`; the lower half of an argument on a little-endian machine.
const CALL: u32 = 0;
const MACHINE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;
const REFUSED: u32 = ERROR | libc::EPERM as u32;
const ABSENT: u32 = ERROR | libc::ENOSYS as u32;

/// The newest call in the lists of this crate. Newer calls are absent, and so is the x32 table,
/// whose numbers begin at 2^30.
const NEWEST: c_long = libc::SYS_mseal;

/// The kernel's name of the call table: in another table (for 32-bit programs) the numbers have
/// other meanings.
#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const OWN_MACHINE: u32 = 0xc000_00f3;

/// Signals whose first argument is the process; allowed to the process itself.
const TO_A_PROCESS: [c_long; 4] =
    [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];

/// Signals to a thread of any process, or to the process of a descriptor.
const TO_ANYTHING: [c_long; 2] = [libc::SYS_tkill, libc::SYS_pidfd_send_signal];

/// Calls that pass their flags behind a pointer, where no filter can read them.
const GONE: [c_long; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// Returns the program of the process `pid`, which continues with `rest`. `kill(0)`, to its own
/// group, is allowed: the group contains only processes that it started.
pub(crate) fn of_process(pid: u32, rest: &[sock_filter]) -> Vec<sock_filter> {
    let mut program = vec![
        load(MACHINE),
        jump(IF_EQUAL, OWN_MACHINE, 1, 0),
        give(REFUSED),
        load(CALL),
        jump(IF_GREATER, NEWEST as u32, 0, 1),
        give(ABSENT),
    ];
    for call in GONE {
        program.extend([jump(IF_EQUAL, call as u32, 0, 1), give(ABSENT)]);
    }
    for call in TO_ANYTHING {
        program.extend([jump(IF_EQUAL, call as u32, 0, 1), give(REFUSED)]);
    }
    for call in TO_A_PROCESS {
        program.extend([
            jump(IF_EQUAL, call as u32, 0, 5),
            load(FIRST_ARGUMENT),
            jump(IF_EQUAL, pid, 1, 0),
            jump(IF_EQUAL, 0, 0, 1),
            give(ALLOW),
            give(REFUSED),
        ]);
    }
    program.extend_from_slice(rest);
    program
}

/// Returns the beginning of a program that refuses these calls, whatever their arguments. It is
/// short: the kernel translates the program of each child again.
pub(crate) fn of_refused<'a>(calls: impl Iterator<Item = &'a c_long>) -> Vec<sock_filter> {
    let mut program = vec![load(MACHINE), jump(IF_EQUAL, OWN_MACHINE, 1, 0), give(REFUSED), load(CALL)];
    program.extend(calls.flat_map(|&call| [jump(IF_EQUAL, call as u32, 0, 1), give(REFUSED)]));
    program
}

const fn load(offset: u32) -> sock_filter {
    sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: offset }
}

/// Skips `then` instructions if the comparison holds, `otherwise` instructions if not.
const fn jump(code: u16, value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { code, jt: then, jf: otherwise, k: value }
}

const fn give(action: u32) -> sock_filter {
    sock_filter { code: RETURN, jt: 0, jf: 0, k: action }
}

#[cfg(test)]
mod tests {
    //! The program as the kernel would run it, on calls with a first argument.

    use super::*;

    const REST: u32 = 0x1234;

    /// Returns the verdict of process 7's program; `REST` where it goes on with the rest.
    fn run(call: c_long, argument: u32) -> u32 {
        run_on(OWN_MACHINE, call, argument)
    }

    fn run_on(machine: u32, call: c_long, argument: u32) -> u32 {
        run_program(&of_process(7, &[give(REST)]), machine, call, argument)
    }

    fn run_program(program: &[sock_filter], machine: u32, call: c_long, argument: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let holds = match step.code {
                LOAD_WORD => {
                    loaded = match step.k {
                        CALL => call as u32,
                        MACHINE => machine,
                        _ => argument,
                    };
                    continue;
                }
                RETURN => return step.k,
                IF_EQUAL => loaded == step.k,
                _ => loaded > step.k,
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn signals_reach_itself_and_its_group_only() {
        for call in TO_A_PROCESS {
            assert_eq!([run(call, 7), run(call, 0)], [ALLOW; 2]);
            assert_eq!([run(call, 8), run(call, 1), run(call, u32::MAX)], [REFUSED; 3]);
        }
        for call in TO_ANYTHING {
            assert_eq!(run(call, 7), REFUSED);
        }
    }

    #[test]
    fn calls_that_hide_their_flags_and_newer_ones_are_absent() {
        for call in GONE {
            assert_eq!(run(call, 0), ABSENT);
        }
        // The x32 table, and whatever a later kernel brings.
        assert_eq!([run(NEWEST + 1, 0), run(0x4000_0000 + libc::SYS_kill, 7)], [ABSENT; 2]);
    }

    #[test]
    fn calls_of_another_table_are_refused() {
        for call in [libc::SYS_kill, libc::SYS_read] {
            assert_eq!(run_on(0x4000_0003, call, 7), REFUSED);
        }
    }

    #[test]
    fn refused_calls_are_refused_and_others_go_on() {
        let calls = [libc::SYS_bpf, libc::SYS_mount, libc::SYS_ptrace];
        let program = [of_refused(calls.iter()), vec![give(REST)]].concat();
        for call in 0..NEWEST {
            let verdict = if calls.contains(&call) { REFUSED } else { REST };
            assert_eq!(run_program(&program, OWN_MACHINE, call, 0), verdict, "{call}");
        }
        assert_eq!(run_program(&program, 0x4000_0003, libc::SYS_read, 0), REFUSED);
    }

    #[test]
    fn other_calls_go_on_with_the_rest() {
        for call in [libc::SYS_read, libc::SYS_clone, libc::SYS_execve, NEWEST] {
            assert_eq!(run(call, 7), REST);
        }
    }
}
