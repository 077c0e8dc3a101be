//! The completed groups of a batch: each is announced at its completion and handed out once.
//! Descriptors become readable then.

use std::io;
use std::sync::Arc;

use super::Batch;
use crate::open_batch::OpenBatch;
use crate::sync::Ordering;
use crate::wake::Wake;

fn notify(wake: Option<&Arc<Wake>>) {
    if let Some(wake) = wake {
        wake.notify();
    }
}

impl Batch {
    /// Announces completed groups; true when the last is among them.
    pub(crate) fn announce(&self, groups: &[usize]) -> bool {
        if groups.is_empty() {
            return false;
        }
        if let Some(additions) = &self.additions {
            groups.iter().for_each(|group| additions.complete(*group));
        }
        {
            let mut ready = self.ready.lock();
            let known = !ready.groups.is_empty();
            ready.groups.extend(groups);
            if !known {
                // If groups were waiting, the descriptor is readable already. A system call per
                // group would cost more than a cheap function.
                notify(ready.news.as_ref());
            }
        }
        self.close(groups.len() as u64)
    }

    pub(super) fn finish(&self) {
        // Locked before the store: a batch that is done closes its descriptors under this lock.
        let ready = self.ready.lock();
        self.finished_ns.store(self.clock.now_ns(), Ordering::Release);
        notify(ready.end.as_ref());
        if ready.handed_out == self.groups() {
            notify(ready.news.as_ref());
        }
    }

    /// Subtracts `groups` from the groups that are not complete; the end of additions counts as
    /// one. True when none is left.
    pub(super) fn close(&self, groups: u64) -> bool {
        let last = self.open_groups.fetch_sub(groups, Ordering::AcqRel) == groups;
        if last {
            self.finish();
        }
        last
    }

    /// Hands out a completed group that was not handed out yet.
    #[must_use]
    pub fn take_group(&self) -> Option<usize> {
        let mut ready = self.ready.lock();
        let group = ready.groups.pop_front()?;
        ready.handed_out += 1;
        // Once all are handed out, the descriptor stays readable, so that every consumer sees the
        // end. `finish` checks under this lock, after it marked the batch as done.
        if ready.groups.is_empty()
            && !(self.is_done() && ready.handed_out == self.groups())
            && let Some(news) = &ready.news
        {
            news.drain();
        }
        Some(group)
    }

    /// Returns whether all groups were handed out and the batch is done.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.is_done() && self.ready.lock().handed_out == self.groups()
    }

    /// Returns a descriptor that is readable while a completed group waits, and for ever after the
    /// last one. Fails if the process has too many descriptors.
    pub fn news(&self) -> io::Result<Arc<Wake>> {
        let mut ready = self.ready.lock();
        if let Some(news) = &ready.news {
            return Ok(news.clone());
        }
        let news = Arc::new(Wake::new()?);
        // All notifications are made under this lock, so a group completed before or after this
        // check is not missed.
        if !ready.groups.is_empty() || (self.is_done() && ready.handed_out == self.groups()) {
            news.notify();
        }
        ready.news = Some(news.clone());
        Ok(news)
    }

    /// Returns a descriptor that is readable from the last outcome on; `None` after `forget_wakes`.
    #[must_use]
    pub fn end(&self) -> Option<Arc<Wake>> {
        self.ready.lock().end.clone()
    }

    /// Returns a descriptor that is readable while samples can be added without waiting; `None`
    /// without a `max_pending`, and after `forget_wakes`.
    #[must_use]
    pub fn room(&self) -> Option<Arc<Wake>> {
        self.additions.as_ref().and_then(OpenBatch::room)
    }

    /// Drops the descriptors of a batch that is done. Holders of copies find all of them readable.
    pub fn forget_wakes(&self) {
        if self.is_done() {
            if let Some(additions) = &self.additions {
                additions.forget_room();
            }
            let mut ready = self.ready.lock();
            let gone = (ready.news.take(), ready.end.take());
            drop(ready);
            drop(gone);
        }
    }
}
