//! The completed groups of a batch: announced as they come, handed out once, and the descriptors
//! that say so.

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
                // Otherwise it is readable already, and a system call per group would cost more
                // than a cheap function.
                notify(ready.news.as_ref());
            }
        }
        self.close(groups.len() as u64)
    }

    pub(super) fn finish(&self) {
        // first: a batch that is done closes its descriptors under this lock.
        let ready = self.ready.lock();
        self.finished_ns.store(self.clock.now_ns(), Ordering::Release);
        notify(ready.end.as_ref());
        if ready.handed_out == self.groups() {
            notify(ready.news.as_ref());
        }
    }

    /// Subtracts `groups` from the groups to wait for, or ends the additions, which count as one;
    /// true when there is nothing left.
    pub(super) fn close(&self, groups: u64) -> bool {
        let last = self.open_groups.fetch_sub(groups, Ordering::AcqRel) == groups;
        if last {
            self.finish();
        }
        last
    }

    /// A completed group that was not handed out yet.
    #[must_use]
    pub fn take_group(&self) -> Option<usize> {
        let mut ready = self.ready.lock();
        let group = ready.groups.pop_front()?;
        ready.handed_out += 1;
        // Left readable for ever once all are handed out, so that every consumer sees it. `finish`
        // checks under this lock, after it marked the batch as done.
        if ready.groups.is_empty()
            && !(self.is_done() && ready.handed_out == self.groups())
            && let Some(news) = &ready.news
        {
            news.drain();
        }
        Some(group)
    }

    /// Returns whether all groups were handed out, and no more come.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.is_done() && self.ready.lock().handed_out == self.groups()
    }

    /// Readable while a completed group waits, as the head says. It fails if there are no
    /// descriptors left.
    pub fn news(&self) -> io::Result<Arc<Wake>> {
        let mut ready = self.ready.lock();
        if let Some(news) = &ready.news {
            return Ok(news.clone());
        }
        let news = Arc::new(Wake::new()?);
        // Under the lock of all who tell of more: nothing that came before is missed, and nothing
        // that comes after.
        if !ready.groups.is_empty() || (self.is_done() && ready.handed_out == self.groups()) {
            news.notify();
        }
        ready.news = Some(news.clone());
        Ok(news)
    }

    /// Readable from the last outcome on; `None` once it was let go.
    #[must_use]
    pub fn end(&self) -> Option<Arc<Wake>> {
        self.ready.lock().end.clone()
    }

    /// Readable while samples can be added without waiting, as `max_pending` says; `None` where
    /// they always can, and once it was let go.
    #[must_use]
    pub fn room(&self) -> Option<Arc<Wake>> {
        self.additions.as_ref().and_then(OpenBatch::room)
    }

    /// Lets the descriptors go, if the batch is done: whoever holds them still finds all of them
    /// readable.
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
