//! End of a process, for messages.

use std::fmt;

/// The kernel's report on a process that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitStatus {
    Exited(i32),
    Killed(i32),
    /// The process that reaped it is gone.
    Unknown,
}

impl ExitStatus {
    /// Converts a wait status; negative without one.
    pub(super) const fn from_wait(status: i64) -> Self {
        match status {
            0..=0xFFFF if status & 0x7F == 0 => Self::Exited((status >> 8) as i32 & 0xFF),
            0..=0xFFFF => Self::Killed(status as i32 & 0x7F),
            _ => Self::Unknown,
        }
    }

    /// Returns whether SIGKILL may have ended the process.
    pub(super) const fn may_be_killed(self) -> bool {
        matches!(self, Self::Killed(9) | Self::Unknown)
    }

    /// Returns whether a process without memory may end like this: by the kernel's SIGKILL, or in C
    /// code after a failed allocation.
    pub(super) const fn may_lack_memory(self) -> bool {
        matches!(self, Self::Killed(6 | 7 | 9 | 11))
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(status) => write!(out, "exited with status {status}"),
            Self::Killed(9) => out.write_str("was killed by SIGKILL (out of memory?)"),
            Self::Killed(number) => match name(number) {
                Some(name) => write!(out, "was killed by {name}"),
                None => write!(out, "was killed by signal {number}"),
            },
            Self::Unknown => out.write_str("ended"),
        }
    }
}

const fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_read_as_the_shell_shows_them() {
        assert_eq!(ExitStatus::from_wait(0x0100).to_string(), "exited with status 1");
        assert_eq!(ExitStatus::from_wait(11).to_string(), "was killed by SIGSEGV");
        assert_eq!(ExitStatus::from_wait(0x80 | 6).to_string(), "was killed by SIGABRT");
        assert_eq!(ExitStatus::from_wait(-1).to_string(), "ended");
    }

    #[test]
    fn only_some_signals_tell_of_memory() {
        assert!([6, 7, 9, 11].iter().all(|signal| ExitStatus::from_wait(*signal).may_lack_memory()));
        for status in [0, 0x0100, 1, 2, 15, 31, -1] {
            assert!(!ExitStatus::from_wait(status).may_lack_memory(), "{status}");
        }
    }
}
