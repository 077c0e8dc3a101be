//! A child process that leaves no zombie: dropping it kills the process and waits for its end.

use std::ops::{Deref, DerefMut};
use std::process::Child;

pub struct ChildGuard(Child);

impl From<Child> for ChildGuard {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for ChildGuard {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for ChildGuard {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // After a wait the process counts as ended.
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait(); // it was killed, so this takes a moment
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_nobody_waited_for_is_ended_and_waited_for() {
        let started = ChildGuard::from(Command::new("sleep").arg("60").spawn().unwrap());
        let folder = format!("/proc/{}", started.id());
        assert!(std::fs::exists(&folder).unwrap());
        drop(started);
        assert!(!std::fs::exists(&folder).unwrap());
    }
}
